"""Devices: where an owner's notifications go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from everturn.domain.delivery import ChatKind
from everturn.domain.errors import Limit, NotFound
from everturn.domain.notifications import (
    DEVICES_ACCOUNT,
    DEVICES_MAX,
    SERVICES_ACCOUNT,
    Device,
    DeviceKind,
    NewDevice,
    NoticeKind,
)
from everturn.store.delivery.chats import lock_owned_chat
from everturn.store.scripts.queries.delivery import CHAT_AT
from everturn.store.scripts.queries.notifications import (
    DEVICE,
    DEVICE_MARKED,
    DEVICE_OF_CHAT,
    DEVICES,
    DeviceColumns,
    NoteColumns,
)
from everturn.store.scripts.script import Database, Script, Tx, q

ERROR_CHARS_MAX = 300
Row = TypeVar("Row", DeviceColumns, NoteColumns)


class Devices:
    """Implements ``domain.notifications.Devices``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, owner: str, new: NewDevice) -> Device:
        return device_of(await self._db.write(_add, owner, new))

    async def list(self, owner: str) -> Sequence[Device]:
        return [device_of(row) for row in await self._db.read(_list, owner)]

    async def get(self, owner: str, device_id: str) -> Device:
        return device_of(await self._db.read(find_device, owner, device_id))

    async def of_chat(self, chat_id: str) -> Device | None:
        row = await self._db.read(_of_chat, chat_id)
        return None if row is None else device_of(row)

    async def change(
        self, owner: str, device_id: str, *, name: str | None, kinds: Sequence[NoticeKind] | None
    ) -> Device:
        return device_of(await self._db.write(_change, owner, device_id, name, kinds))

    async def remove(self, owner: str, device_id: str) -> None:
        await self._db.write(_remove, owner, device_id)

    async def note_sent(self, device_id: str) -> None:
        await self._db.write(_note_sent, device_id)

    async def note_error(self, device_id: str, error: str, *, is_ended: bool = False) -> None:
        await self._db.write(_note_error, device_id, error, is_ended)


def device_of(row: Row) -> Device:
    return Device(
        id=row.device_id,
        owner=row.device_owner,
        kind=DeviceKind(row.device_kind),
        name=row.name,
        kinds=tuple(map(NoticeKind, row.kinds.split())),
        created_at=row.added_at,
        has_buttons=bool(row.has_buttons),
        sent_at=row.sent_at,
        ended_at=row.ended_at,
        error=row.error,
        address=row.address,
        chat_id=row.device_chat,
    )


def find_device(tx: Tx, owner: str, device_id: str) -> Script[DeviceColumns]:
    row = yield from DEVICE.first(device_id)
    if row is None or row.device_owner != owner:
        raise NotFound("device", device_id)
    return row


def _add(tx: Tx, owner: str, new: NewDevice) -> Script[DeviceColumns]:
    known = yield from DEVICE_MARKED.first(owner, new.mark)
    if known is not None:
        yield q("device_renew", known.device_no, new.address, int(new.has_buttons))
        return (yield from DEVICE.only(known.device_id))
    if len((yield from DEVICES.all(owner))) >= DEVICES_MAX:
        raise Limit(f"There are {DEVICES_MAX} devices already.", hint="Remove some first.")
    chat_no = yield from _chat_no(tx, owner, new)
    kinds = " ".join(kind.value for kind in new.kinds)
    buttons = int(new.has_buttons)
    device = (new.id, owner, new.kind.value, new.name, kinds, new.address, buttons, new.mark)
    yield q("device_insert", *device, chat_no, tx.now)
    return (yield from DEVICE.only(new.id))


def _chat_no(tx: Tx, owner: str, new: NewDevice) -> Script[int]:
    """The chat whose parts the device gets: one of its own, unless it is a chat."""
    if new.chat_id is not None:
        return (yield from lock_owned_chat(tx, owner, new.chat_id)).chat_no
    account = SERVICES_ACCOUNT if new.kind is DeviceKind.SERVICE else DEVICES_ACCOUNT
    chat = (owner, account, new.kind.value, ChatKind.DIRECT.value, new.id, "", "", new.name, tx.now)
    yield q("chat_insert", tx.ids.make("cht"), *chat)
    return (yield from CHAT_AT.only(account, new.id, "")).chat_no


def _list(tx: Tx, owner: str) -> Script[list[DeviceColumns]]:
    return (yield from DEVICES.all(owner))


def _of_chat(tx: Tx, chat_id: str) -> Script[DeviceColumns | None]:
    return (yield from DEVICE_OF_CHAT.first(chat_id))


def _change(
    tx: Tx, owner: str, device_id: str, name: str | None, kinds: Sequence[NoticeKind] | None
) -> Script[DeviceColumns]:
    row = yield from find_device(tx, owner, device_id)
    chosen = row.kinds if kinds is None else " ".join(kind.value for kind in kinds)
    yield q("device_change", row.device_no, row.name if name is None else name, chosen)
    return (yield from DEVICE.only(device_id))


def _remove(tx: Tx, owner: str, device_id: str) -> Script[None]:
    row = yield from find_device(tx, owner, device_id)
    yield q("device_notes_delete", row.device_no)
    yield q("device_chat_delete", row.device_chat_no)
    yield q("device_delete", row.device_no)


def _note_sent(tx: Tx, device_id: str) -> Script[None]:
    yield q("device_sent", device_id, tx.now)


def _note_error(tx: Tx, device_id: str, error: str, is_ended: bool) -> Script[None]:
    yield q("device_failed", device_id, error[:ERROR_CHARS_MAX], tx.now if is_ended else None)
