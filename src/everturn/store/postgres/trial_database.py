"""A database beside ours into which a backup is restored on trial."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from everturn.domain.errors import Stopped
from everturn.store.postgres.connection import LOST, Connector, explain_error

_NOTE = "Everturn restores backups into this database on trial, and drops it."


@asynccontextmanager
async def trial_database(address: str) -> AsyncIterator[str]:
    """The address of an empty database on the same server. It is dropped at the end and, if this was
    interrupted, at the next beginning. Raises Stopped if the role may not make one, StoreAway."""
    connection = await Connector(address).connect()
    try:
        name = _name_of(await connection.fetchval("SELECT current_database()"))
        await _drop(connection, name)
        try:
            await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
            await connection.execute(f"COMMENT ON DATABASE \"{name}\" IS '{_NOTE}'")
        except asyncpg.InsufficientPrivilegeError as error:
            raise Stopped(
                "The trial restore was not made: the role of the database may not create databases.",
                hint="Run ALTER ROLE … CREATEDB, or set drill_days = 0 in [backup].",
            ) from error
        try:
            yield urlunsplit(urlsplit(address)._replace(path=f"/{name}"))
        finally:
            await _drop(connection, name)
    except (*LOST, asyncpg.PostgresError) as error:
        raise explain_error(error, address) from error
    finally:
        await connection.close()


def _name_of(database: str) -> str:
    return f"everturn_trial_{hashlib.sha256(database.encode()).hexdigest()[:12]}"


async def _drop(connection: asyncpg.Connection, name: str) -> None:
    """Drop what an earlier trial left. A database without our note is not ours."""
    note = await connection.fetchrow(
        "SELECT shobj_description(oid, 'pg_database') AS text FROM pg_database WHERE datname = $1", name
    )
    if note is None:
        return
    if note["text"] != _NOTE:
        raise Stopped(
            f"The trial restore was not made: the database {name} is in the way, and has no note of ours.",
            hint=f"If nothing uses it, drop it: DROP DATABASE {name}.",
        )
    await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
