"""Each declared query gives exactly the columns that its shape names, in their order."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import apsw
import asyncpg
import pytest

from everturn.store import sql
from everturn.store.scripts import queries
from everturn.store.scripts.script import Select, SelectTuples, SelectValue
from everturn.store.sqlite.connection import prepare

pytestmark = pytest.mark.anyio

AnySelect = Select | SelectTuples | SelectValue
MODULES = [
    import_module(f"{queries.__name__}.{found.name}") for found in pkgutil.iter_modules(queries.__path__)
]
DECLARED: list[AnySelect] = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, (Select, SelectTuples, SelectValue))
]


def expected(query: AnySelect, columns: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(query, Select):
        return query.shape.__struct_fields__
    return query.columns if isinstance(query, SelectTuples) else columns[:1]


def test_each_shape_is_that_of_its_query_on_sqlite(tmp_path: Path) -> None:
    texts = sql.queries("sqlite")
    connection = prepare(tmp_path / "everturn.db")
    try:
        for query in DECLARED:
            if query.name in texts:
                text = re.sub(r"\$(\d+)", r"?\1", texts[query.name])
                columns = _sqlite_columns(connection, text)
                assert columns == expected(query, columns), query.name
    finally:
        connection.close()


def _sqlite_columns(connection: apsw.Connection, text: str) -> tuple[str, ...]:
    """The names of a statement's columns, asked for before it is run."""
    found: list[tuple[str, ...]] = []

    def trace(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        found.append(tuple(name for name, *_ in cursor.get_description()))
        return False  # do not run it

    cursor = connection.cursor()
    cursor.exec_trace = trace
    count = len(set(re.findall(r"\?(\d+)", text)))
    with pytest.raises(apsw.ExecTraceAbort):
        cursor.execute(text, (None,) * count)
    return found[0]


async def test_each_shape_is_that_of_its_query_on_postgresql(postgres_url: str) -> None:
    texts = sql.queries("postgresql")
    connection = await asyncpg.connect(postgres_url)
    try:
        for query in DECLARED:
            if query.name in texts:
                statement = await connection.prepare(texts[query.name])
                columns = tuple(attribute.name for attribute in statement.get_attributes())
                assert columns == expected(query, columns), query.name
    finally:
        await connection.close()


def test_every_declared_query_is_in_the_sql() -> None:
    known = {*sql.queries("sqlite"), *sql.queries("postgresql")}
    assert [query.name for query in DECLARED if query.name not in known] == []
