"""Removes an account: everything it still had to do ends, with a stated fate, in one transaction.

The rows of its chats stay, because they record what became of answers, but under a name that no account can
have, so that a new account of the same name starts empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from everturn.domain.delivery import NewPart, Refusal
from everturn.domain.store_values import RecordName
from everturn.store.delivery.leases import lock_lease_row, next_epoch
from everturn.store.delivery.replies import add_parts
from everturn.store.scripts.queries.delivery import (
    CHATS_OF_ACCOUNT,
    OUTBOX_RECORD,
    REPLIES_OWED,
)
from everturn.store.scripts.rows import to_json
from everturn.store.scripts.script import Script, Tx, q
from everturn.store.turn_replies import REMOVED_MARK

_REMOVED: Final = "The account was removed."


def remove_account(tx: Tx, account: str, records: Sequence[RecordName]) -> Script[None]:
    yield q("lease_insert", account)
    lease = yield from lock_lease_row(tx, account)
    if tx.dialect == "postgresql":
        yield q("chats_lock", account)
    for record in records:
        yield q("record_delete", record.owner, record.kind, record.name)
    yield from _end_all(tx, account)
    for chat in (yield from CHATS_OF_ACCOUNT.all(account)):
        if chat.session_id is not None:
            tx.touch(chat.owner, chat.session_id)
    # A name that no account can have, and another one each time.
    retired = f"{account}{REMOVED_MARK}{next_epoch(lease)}"
    for table in ("chats", "inbox", "outbox", "parts"):
        yield q(f"{table}_retire", account, retired)
    yield q("lease_set", account, None, -next_epoch(lease))


def readmit_account(tx: Tx, account: str) -> Script[None]:
    yield q("lease_insert", account)
    lease = yield from lock_lease_row(tx, account)
    if lease.is_removed:
        yield q("lease_set", account, None, next_epoch(lease))


def _end_all(tx: Tx, account: str) -> Script[None]:
    refusal = to_json(Refusal("account_removed", _REMOVED))
    yield q("inbox_refuse_all", account, tx.now, refusal)
    # Replies that are owed get a part, which says what became of them.
    for owed in (yield from REPLIES_OWED.all(account)):
        yield from OUTBOX_RECORD.first(owed.outbox_id, tx.now)
        yield from add_parts(tx, owed, owed.outbox_no, [NewPart()], age_max_ms=0)
    yield q("parts_end_waiting", account, _REMOVED, tx.now)
    yield q("parts_lost", account, _REMOVED, tx.now)
    yield q("parts_hold_unknown", account, tx.now)
