"""Everything that has a name outside the code: on disk, on the wire, on the command line.

    python -m tests.golden.names        writes names.json anew

A name in ``names.json`` may never go or change its meaning without a migration; new ones are added by running this.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import apsw
import asyncpg
import click
import msgspec

import everturn
from everturn.cli.main import everturn as commands
from everturn.config import TABLES, TOP, former_settings
from everturn.domain.errors import EverturnError
from everturn.domain.events import AnyPayload
from everturn.domain.gateway import AccountSetup
from everturn.domain.settings import settings_of
from everturn.models.settings import ModelSettings, ProviderSettings
from everturn.store import open_store
from everturn.testing import Say
from everturn.testing.postgres_server import PostgresServer
from everturn.testing.web_server import run_web
from everturn.tools.profiles import McpServer, Profile

_ID = re.compile(r"(?<=_)[0-9a-z]{26}")
FILE = Path(__file__).parent / "names.json"


def events() -> dict[str, Any]:
    """Each event kind with its fields, and the values inside them."""
    _, components = msgspec.json.schema_components([AnyPayload], ref_template="{name}")
    return {name: _shape(schema) for name, schema in sorted(components.items())}


def _shape(schema: dict[str, Any]) -> dict[str, Any]:
    """Wire names only: a class's own name may change, its tag and its fields may not."""
    fields = schema.get("properties", {})
    kind = fields.get("kind", {}).get("enum")
    return {"kind": kind, "fields": sorted(fields), "values": sorted(map(str, schema.get("enum", [])))}


def event_shapes() -> list[Any]:
    return sorted(events().values(), key=json.dumps)


def problems() -> list[str]:
    """The codes of all errors that a client can be given."""
    for module in pkgutil.walk_packages(everturn.__path__, "everturn."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    return sorted({error.code for error in _subclasses(EverturnError)})


def _subclasses(error: type[EverturnError]) -> Iterator[type[EverturnError]]:
    for child in error.__subclasses__():
        if child.__module__.startswith("everturn"):
            yield child
            yield from _subclasses(child)


def flags() -> dict[str, list[str]]:
    return dict(_flags(commands, "everturn"))


def _flags(command: click.Command, name: str) -> Iterator[tuple[str, list[str]]]:
    yield (
        name,
        sorted(word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)),
    )
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            assert child is not None
            yield from _flags(child, f"{name} {child_name}")


def settings() -> list[str]:
    """Settings by their place in config.toml."""
    inside = [f"{table}.{name}" for table, kind in TABLES.items() for name in settings_of(kind)]
    named = {
        "profiles": Profile,
        "mcp": McpServer,
        "providers": ProviderSettings,
        "models": ModelSettings,
        "gateway": AccountSetup,
    }
    return sorted(
        [*TOP, *inside, *(f"{place}.{n}" for place, kind in named.items() for n in settings_of(kind))]  # type: ignore[arg-type]  # each kind is a Struct class
    )


def sqlite_tables(database: Path) -> dict[str, list[str]]:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    rows = connection.execute(
        "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY 1, 2"
    ).fetchall()
    connection.close()
    return _grouped(rows)


async def postgresql_tables(address: str) -> dict[str, list[str]]:
    connection = await asyncpg.connect(address)
    try:
        rows = await connection.fetch(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
        )
    finally:
        await connection.close()
    return _grouped([(row[0], row[1]) for row in rows])


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table, column in rows:
        found.setdefault(str(table), []).append(str(column))
    return found


class Served(msgspec.Struct):
    """What a server that has run one turn shows of itself."""

    metrics: list[str]
    endpoints: list[str]
    folder: list[str]
    tables: dict[str, list[str]]


async def served(home: Path) -> Served:
    home.mkdir()
    async with open_store(f"sqlite://{home / 'everturn.db'}", data_dir=home) as store:
        async with run_web(store, home, [Say("hello")]) as web:
            session = await web.new_session()
            await web.run(session["id"])
            text = (await web.http.get("/metrics")).text
            endpoints = [
                f"{method.upper()} {path}"
                for path, methods in web.document["paths"].items()
                for method in methods
                if method != "parameters"
            ]
        folder = sorted({_ID.sub("ID", str(path.relative_to(home))) for path in home.rglob("*")})
    metrics = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    return Served(sorted(metrics), sorted(endpoints), folder, sqlite_tables(home / "everturn.db"))


async def collect(home: Path, postgres_url: str) -> dict[str, Any]:
    async with open_store(postgres_url, data_dir=home.with_name("postgres")):
        pass
    server = await served(home)
    return {
        "events": event_shapes(),
        "problems": problems(),
        "flags": flags(),
        "settings": settings(),
        "former settings": former_settings(),
        "metrics": server.metrics,
        "endpoints": server.endpoints,
        "data folder": server.folder,
        "tables in SQLite": server.tables,
        "tables in PostgreSQL": await postgresql_tables(postgres_url),
    }


def _write() -> None:
    with TemporaryDirectory() as folder, PostgresServer() as server:
        found = anyio.run(collect, Path(folder, "home"), server.address())
    FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    _write()
