"""What a backup would bring into force: who gets in, what runs unasked, what its settings start."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import msgspec

from everturn.cli.common import printable
from everturn.config import FILE
from everturn.domain.errors import Invalid
from everturn.store import BackupContents, BackupRecord

# Settings that start nothing, send nothing and open no door. All others are shown.
_HARMLESS = frozenset({"port", "model"})
_HARMLESS_TABLES = frozenset({"engine", "store", "memory", "server"})
_SHOWN = frozenset(
    {
        "memory.provider",
        "server.base_path",
        "server.host",
        "server.hosts",
        "server.password",
        "server.public_url",
        "server.trusted_proxies",
        "store.direct_url",
    }
)
_SECRET = ("password", "database_url", "database_direct_url", "direct_url")


def ask_about(source: Path, contents: BackupContents, *, is_accepted: bool) -> None:
    """Print what comes into force and ask for consent, unless there is nothing. Raises Invalid without it.
    ``is_accepted``: the user agreed beforehand."""
    lines = [*_access(contents.records), *_rules(contents), *_settings(source / FILE)]
    if not lines:
        return
    click.echo(f"{source} is not only data. Restored, this comes into force:", err=True)
    for line in lines:
        click.echo(f"  {printable(line).replace(chr(10), ' ')}", err=True)
    if is_accepted:
        return
    if not (
        sys.stdin.isatty() and click.confirm("Did you make this backup, and do you want that?", err=True)
    ):
        raise Invalid(
            "Nothing was restored.",
            hint="If you want all of it, add --yes. From others, take exported sessions instead of a backup.",
        )


def _access(records: tuple[BackupRecord, ...]) -> Iterator[str]:
    for record in records:
        value = record.value
        if record.kind == "token":
            scopes = ", ".join(map(str, value.get("scopes") or ()))
            yield f"API token {value.get('label', '')!r}, which may: {scopes}"
        elif record.kind == "password":
            yield f"the password of the account {record.name!r}"
    for kind, words in (("signin", "signed-in browser(s)"), ("browser", "known browser(s)")):
        if count := sum(record.kind == kind for record in records):
            yield f"{count} {words}"


def _rules(contents: BackupContents) -> Iterator[str]:
    for record in contents.records:
        if record.kind == "policy.rule":
            yield f"always allowed: {record.value.get('covers') or record.value.get('label', '')}"
        elif record.kind == "policy.trust":
            yield f"trusted as it is: {record.name}"
    if count := sum(record.kind == "policy.session" for record in contents.records):
        yield f"{count} answer(s) that allow something in one session"
    for project in contents.projects:
        yield f"sessions that work in {project}"
    for storage in contents.storages:
        yield f"files that are read from, and deleted in, {storage}"
    for schedule in contents.schedules:
        yield f"schedule {schedule.get('name', '')!r}, which sends to the agent: {schedule.get('text', '')}"
    if contents.unfinished_turns:
        yield f"{contents.unfinished_turns} unfinished turn(s), which continue when the server starts"


def _settings(file: Path) -> Iterator[str]:
    if not file.is_file() or file.is_symlink():
        return  # a link is not restored
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        yield f"{FILE}, which cannot be read: {error}"
        return
    for name, value in _flatten(values):
        table, _, _ = name.partition(".")
        if name in _SHOWN or not (name in _HARMLESS or ("." in name and table in _HARMLESS_TABLES)):
            is_secret = name.rpartition(".")[2] in _SECRET or ".env." in name or ".headers." in name
            shown = "(not shown)" if is_secret else msgspec.json.encode(value).decode()
            yield f"{FILE}: {name} = {shown}"


def _flatten(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
