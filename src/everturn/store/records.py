"""Records: small durable values by owner, kind and name. Each kind has its own shape, which its reader knows
and the store does not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from everturn.domain.json_types import Json, JsonObject
from everturn.domain.store_values import RecordName
from everturn.store.scripts.queries.records import RECORD, RECORDS, RECORDS_OF_KIND, OwnedRecordColumns
from everturn.store.scripts.rows import to_json
from everturn.store.scripts.script import Database, Script, Tx, q

_BATCH: Final = 500


class Records:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def put(self, owner: str, kind: str, name: str, value: Json) -> None:
        await self._db.write(_put, owner, kind, name, to_json(value))

    async def replace(self, owner: str, kind: str, name: str, value: Json) -> bool:
        return await self._db.write(_replace, owner, kind, name, to_json(value))

    async def get(self, owner: str, kind: str, name: str) -> Json | None:
        return await self._db.read(_get, owner, kind, name)

    async def list(self, owner: str, kind: str) -> JsonObject:
        return await self._db.read(_list, owner, kind)

    async def of_kind(self, kind: str) -> AsyncIterator[Sequence[Json]]:
        owner, name = "", ""
        while found := await self._db.read(_of_kind, kind, owner, name):
            yield [msgspec.json.decode(row.value) for row in found]
            owner, name = found[-1].owner, found[-1].name

    async def delete(self, owner: str, kind: str, name: str) -> bool:
        return await self._db.write(_delete, owner, kind, name)

    async def trade(self, given: RecordName, taken: RecordName, value: Json) -> bool:
        return await self._db.write(_trade, given, taken, to_json(value))


def _trade(tx: Tx, given: RecordName, taken: RecordName, value: str) -> Script[bool]:
    if not (yield from _delete(tx, *given)):  # guard: f05
        return False
    yield from _put(tx, *taken, value)
    return True


def _put(tx: Tx, owner: str, kind: str, name: str, value: str) -> Script[None]:
    yield q("record_put", owner, kind, name, value, tx.now)


def _replace(tx: Tx, owner: str, kind: str, name: str, value: str) -> Script[bool]:
    return bool((yield q("record_replace", owner, kind, name, value, tx.now)))


def _get(tx: Tx, owner: str, kind: str, name: str) -> Script[Json | None]:
    value = yield from RECORD.first(owner, kind, name)
    return None if value is None else msgspec.json.decode(value)


def _list(tx: Tx, owner: str, kind: str) -> Script[JsonObject]:
    return {row.name: msgspec.json.decode(row.value) for row in (yield from RECORDS.all(owner, kind))}


def _of_kind(tx: Tx, kind: str, owner: str, name: str) -> Script[list[OwnedRecordColumns]]:
    return (yield from RECORDS_OF_KIND.all(kind, owner, name, _BATCH))


def _delete(tx: Tx, owner: str, kind: str, name: str) -> Script[bool]:
    return bool((yield q("record_delete", owner, kind, name)))
