"""Chats: where people talk to an account, and which session they talk to. A chat's row is its lock."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.domain.delivery import Chat, ChatKind, ChatPlace, SeenChat, SenderRole, Update
from everturn.domain.errors import Denied, NotFound
from everturn.store.delivery.leases import refuse_removed
from everturn.store.scripts.common import shown_session
from everturn.store.scripts.queries.delivery import (
    CHAT,
    CHAT_AT,
    CHATS,
    CHATS_SEEN,
    CHATS_WORKING,
    ChatColumns,
)
from everturn.store.scripts.script import Database, Script, Tx, q


class Chats:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, owner: str, chat_id: str) -> Chat:
        return chat_of(await self._db.read(find_chat, owner, chat_id))

    async def list(self, owner: str) -> list[Chat]:
        return await self._db.read(_list, owner)

    async def list_seen(self, account: str, *, limit: int) -> Sequence[SeenChat]:
        return await self._db.read(_list_seen, account, limit)

    async def list_working(self, account: str, *, limit: int) -> Sequence[Chat]:
        return await self._db.read(_list_working, account, limit)

    async def switch(self, owner: str, chat_id: str, session_id: str | None) -> Chat:
        return await self._db.write(_switch, owner, chat_id, session_id)


def chat_of(row: ChatColumns) -> Chat:
    place = ChatPlace(row.account, row.platform, ChatKind(row.kind), row.chat, row.thread)
    return Chat(row.chat_id, row.owner, place, row.profile, row.title, row.session_id, row.created_at)


def lock_chat(tx: Tx, chat_no: int) -> Script[None]:
    """Take the chat's lock. It comes before the lock of a session."""
    if tx.dialect == "postgresql":  # guard: f02 postgresql
        yield q("chat_lock", chat_no)


def lock_chat_at(tx: Tx, owner: str, profile: str, update: Update) -> Script[ChatColumns]:
    """Lock the chat that the update came from, and make it if it is new."""
    place = update.place
    at = (place.account, place.chat, place.thread)
    if (yield from CHAT_AT.first(*at)) is None:
        # The chats of a removed account have another name: refuse what still arrives for it.
        yield from refuse_removed(tx, place.account)
        yield q(
            "chat_insert",
            tx.ids.make("cht"),
            owner,
            place.account,
            place.platform,
            place.kind.value,
            place.chat,
            place.thread,
            profile,
            update.chat_title,
            tx.now,
        )
    found = yield from CHAT_AT.only(*at)
    yield from lock_chat(tx, found.chat_no)
    locked = yield from CHAT_AT.first(*at)
    if locked is None:  # the account was removed while this waited for the lock
        raise NotFound("account", place.account)
    found = locked
    if found.owner != owner:
        yield from _change_owner(tx, found, owner, profile, update.role)
        found = yield from CHAT_AT.only(*at)
    return found


def _change_owner(tx: Tx, chat: ChatColumns, owner: str, profile: str, role: SenderRole) -> Script[None]:
    """Give the chat of a former guest to the account's owner, and leave the guest's session."""
    if role is SenderRole.GUEST:  # guard: f05
        raise Denied("The chat belongs to another owner.", hint="A guest is served in their own chats.")
    if chat.session_id is not None:
        tx.touch(chat.owner, chat.session_id)
    yield q("chat_owner", chat.chat_no, owner, profile)


def set_session(tx: Tx, chat: ChatColumns, session_id: str | None) -> Script[None]:
    """Make this the chat's current session. Lists show of which chat a session is the current one."""
    for changed in {chat.session_id, session_id} - {None}:
        tx.touch(chat.owner, str(changed))
    yield q("chat_session", chat.chat_no, session_id)


def find_chat(tx: Tx, owner: str, chat_id: str) -> Script[ChatColumns]:
    found = yield from CHAT.first(chat_id, owner)
    if found is None:
        raise NotFound("chat", chat_id)
    return found


def lock_owned_chat(tx: Tx, owner: str, chat_id: str) -> Script[ChatColumns]:
    """The chat as it is under its lock."""
    found = yield from find_chat(tx, owner, chat_id)
    yield from lock_chat(tx, found.chat_no)
    return (yield from find_chat(tx, owner, chat_id))


def _list(tx: Tx, owner: str) -> Script[list[Chat]]:
    return [chat_of(row) for row in (yield from CHATS.all(owner))]


def _list_seen(tx: Tx, account: str, limit: int) -> Script[Sequence[SeenChat]]:
    rows = yield from CHATS_SEEN.all(account, limit)
    return [SeenChat(chat_of(row).place, row.last_number or 0) for row in rows]


def _list_working(tx: Tx, account: str, limit: int) -> Script[list[Chat]]:
    return [chat_of(row) for row in (yield from CHATS_WORKING.all(account, limit))]


def _switch(tx: Tx, owner: str, chat_id: str, session_id: str | None) -> Script[Chat]:
    found = yield from lock_owned_chat(tx, owner, chat_id)
    if session_id is not None:
        yield from shown_session(tx, owner, session_id)
    yield from set_session(tx, found, session_id)
    return msgspec.structs.replace(chat_of(found), session_id=session_id)
