#!/usr/bin/env python3
"""Writes docs/cli.md, events.md and endpoints.md from the code: .venv/bin/python scripts/reference.py

tests/unit/docs/test_reference.py fails when one is out of date. docs/configuration.md is configuration.py's.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import anyio
import click

from everturn.app import open_app, open_backups, open_gateway, open_notifications, open_web
from everturn.cli.main import everturn as commands
from everturn.config import read_config
from everturn.domain.events import AnyPayload
from everturn.domain.json_types import JsonObject
from everturn.web.build import describe_table

DOCS = Path(__file__).resolve().parent.parent / "docs"
WRITTEN = "Written by `scripts/reference.py` from the code; do not edit it by hand.\n"
HELP_WIDTH = 88


def cli() -> str:
    """Every command with what its ``--help`` prints."""
    head = f"# Command line\n\n{WRITTEN}\n`everturn COMMAND --help` prints the same.\n"
    return "\n".join([head, *_commands(commands, "everturn")]).rstrip("\n") + "\n"


def _commands(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path, terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH)
    context.help_option_names = ["-h", "--help"]
    yield f"{'#' * min(len(path.split()) + 1, 4)} {path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, f"{path} {name}")


def events() -> str:
    """Every kind of event with its fields."""
    lines = [
        f"# Events\n\n{WRITTEN}",
        "What a stream sends and a session's journal holds. Fields are only added; a client passes over "
        "kinds\nand fields that it does not know ([api](api.md)). `GET /openapi.json` has their types.\n",
        "| Kind | Fields | |\n|---|---|---|",
    ]
    kinds = {kind.__struct_config__.tag: kind for kind in get_args(AnyPayload)}
    for tag, kind in sorted(kinds.items(), key=lambda pair: str(pair[0])):
        fields = ", ".join(f"`{name}`" for name in kind.__struct_encode_fields__)
        lines.append(f"| `{tag}` | {fields} | {_first_paragraph(kind.__doc__)} |")
    return "\n".join(lines) + "\n"


def _first_paragraph(text: str | None) -> str:
    words = " ".join((text or "").split("\n\n")[0].split())
    return re.sub(r"``([^`]+)``", r"`\1`", words).replace("|", "\\|")


def endpoints() -> str:
    """Every endpoint with what it does, by tag."""
    with tempfile.TemporaryDirectory() as home:
        document = anyio.run(_document, Path(home))
    lines = [
        f"# Endpoints\n\n{WRITTEN}",
        "`GET /openapi.json` of a running server is the whole description, with the types of requests, "
        "answers\nand problems. How to use them: [api](api.md).\n",
    ]
    for tag in document["tags"]:
        rows = list(_rows(document, tag["name"]))
        if rows:
            lines += [f"## {tag['name']}\n\n{tag['description']}\n", "| | |\n|---|---|", *rows, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _rows(document: JsonObject, tag: str) -> Iterator[str]:
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            if method != "parameters" and tag in operation["tags"]:
                yield f"| `{method.upper()} {path}` | {operation['summary']} |"


async def _document(home: Path) -> JsonObject:
    async with open_app(read_config(home, {}), environ={}) as app:
        web = open_web(app, open_gateway(app), open_notifications(app), open_backups(app))
        return describe_table(web.table)


PAGES = {"cli.md": cli, "events.md": events, "endpoints.md": endpoints}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--print"]:
        print(PAGES[sys.argv[2]](), end="")
    else:
        for name, make in PAGES.items():
            (DOCS / name).write_text(make(), encoding="utf-8")
