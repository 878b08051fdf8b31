#!/usr/bin/env python3
"""Writes docs/configuration.md from the typed settings: .venv/bin/python scripts/configuration.py

tests/unit/test_configuration.py fails when the file is out of date.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from everturn.config import SERVER_ENVIRONMENT, TABLES, TOP, former_settings, variable_of
from everturn.domain.gateway import AccountSetup
from everturn.domain.settings import Setting, settings_of
from everturn.models.settings import ModelSettings, ProviderSettings
from everturn.tools.profiles import McpServer, Profile

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
INTRODUCTION = """\
# Configuration

Written by `scripts/configuration.py` from the settings in the code; do not edit it by hand.

Settings are read from `config.toml` in the data folder, then from the environment, then from flags; the last
one wins. An invalid setting stops the start with an error that names the line and the key. The data folder is
`~/.everturn`, or the value of `EVERTURN_HOME` or `--home`. API keys are not settings: see
[operations](operations.md).
"""
ABOUT = {
    "server": "The web server.",
    "engine": "How turns run.",
    "store": "The database.",
    "files": "Files of sessions ([files](files.md)).",
    "memory": "What is remembered across sessions ([memory](memory.md)).",
    "delivery": "What is sent to messaging platforms ([gateway](gateway.md)).",
    "notifications": "Messages while the page is closed ([notifications](notifications.md)).",
    "budget": "The time zone where none is named, and what guests may spend ([budgets](budgets.md)).",
    "jobs": "Commands in the background ([jobs](jobs.md)).",
    "delegates": "Sessions that work for a turn of another ([delegates](delegates.md)).",
    "packages": "Where the Python packages of profiles come from ([agent.md](agent.md#python-packages)).",
    "search": "Web search ([agent](agent.md#web-search)).",
    "traces": "OpenTelemetry traces ([tracing](tracing.md)).",
    "backup": "Scheduled backups ([backups](backups.md)).",
}
NAMED = {
    "profiles.NAME": (
        Profile,
        "How an agent works. `default`, `pocket` and `guest` are built in and can be changed.",
    ),
    "mcp.NAME": (McpServer, "An MCP server; a profile uses it by its name."),
    "gateway.NAME": (
        AccountSetup,
        "An account on a messaging platform, with more settings for each platform ([gateway](gateway.md)).",
    ),
    "models.providers.NAME": (
        ProviderSettings,
        "A model provider of your own, or other values for a known one. Its models are `NAME:model`.",
    ),
    'models.settings."PROVIDER:MODEL"': (
        ModelSettings,
        "What Everturn cannot find out about a model, or finds out wrongly.",
    ),
}
UNITS = {
    "_bytes_max": "bytes",
    "_chars_max": "characters",
    "_tokens": "tokens",
    "_usd_max": "US dollars",
    "_mib": "MiB",
    "_s": "seconds",
}


def render() -> str:
    """The whole document."""
    return "\n".join([INTRODUCTION, *_top(), *_tables(), *_named(), *_former()])


def _top() -> Iterator[str]:
    yield "## Outside of tables\n"
    yield from _rows(
        ("Setting", "Environment", ""),
        ((f"`{name}`", f"`{variable_of(name)}`", about) for name, about in TOP.items()),
    )


def _tables() -> Iterator[str]:
    for table, kind in TABLES.items():
        yield f"## [{table}]\n\n{ABOUT[table]}\n"
        yield from _struct(kind, table)


def _named() -> Iterator[str]:
    for table, (kind, about) in NAMED.items():
        yield f"## [{table}]\n\n{about}\n"
        yield from _struct(kind, table)


def _former() -> Iterator[str]:
    yield "## Former settings\n"
    yield "Ignored with a warning in this release, errors in the next one:\n"
    yield ", ".join(f"`{name}`" for name in former_settings()) + ".\n"


def _struct(kind: type[msgspec.Struct], table: str) -> Iterator[str]:
    yield from _rows(
        ("Setting", "Type", "Default", ""),
        (
            (f"`{setting.name}`", _type_of(setting), _default_of(setting), _about(setting, table))
            for setting in settings_of(kind).values()
        ),
    )


def _about(setting: Setting, table: str) -> str:
    has_variable = table == "server" and setting.name in SERVER_ENVIRONMENT
    return setting.about + (f" Environment: `{variable_of(setting.name)}`." if has_variable else "")


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _type_of(setting: Setting) -> str:
    unit = "minutes" if setting.name == "minutes_max" else None
    for suffix, name in UNITS.items():
        if unit is None and setting.name.endswith(suffix):
            unit = name
    kind = _kind(setting.type)
    return f"{kind}, {unit}" if unit and kind in ("integer", "number") else kind


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        return " or ".join(_value(part) for part in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " or ".join(_value(word.value) for word in annotation)
    if get_origin(annotation) is tuple:
        return "list of texts"
    if get_origin(annotation) is dict:
        return "table"
    return {int: "integer", float: "number", bool: "boolean", str: "text", Path: "path"}[annotation]


def _default_of(setting: Setting) -> str:
    if setting.default is msgspec.NODEFAULT:
        return "required"
    if setting.default is None:
        return ""
    if isinstance(setting.default, str) and len(setting.default) > 40:
        return "built in"
    return _value(setting.default)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{msgspec.json.encode(value).decode()}`"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
