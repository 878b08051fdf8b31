"""Secrets as encrypted rows of PostgreSQL, the same on every server that has the key.

Rows are kept in memory as they are stored, encrypted, and read again every second. A process writes with the
key that the store names as the current one, never with another: so a server with a wrong key cannot overwrite
what it cannot read. ``rotate`` is the only way to change the current key.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from everturn.domain.errors import EverturnError, SecretKeyWrong, SecretUnreadable, StoreAway, WrongState
from everturn.domain.secrets import Secret, SecretsPlace, SecretsState
from everturn.store.scripts.queries.records import (
    RECORD,
    SECRET_HOLDERS,
    SECRETS_ALL,
    HolderColumns,
    SealedColumns,
)
from everturn.store.scripts.rows import to_json
from everturn.store.scripts.script import Database, Script, Tx, q
from everturn.store.secrets.key_ring import VARIABLE, KeyRing, Sealed

_log = logging.getLogger("everturn.secrets")
_POLL_S = 1.0
_RENEW_POLLS = 10  # a holder's row is renewed at every tenth poll
_HOLDER_MS = 60_000  # a holder that was not seen for this long has gone
_KEY = ("system", "secrets", "key")  # the record that names the current key


class SecretsHolder(msgspec.Struct, frozen=True):
    """A process that has the secrets open."""

    machine: str
    key_ids: tuple[str, ...]


class SecretsStatus(msgspec.Struct, frozen=True):
    """``current``: the id of the key that encrypts; None if nothing was stored yet."""

    current: str | None
    names: tuple[str, ...]
    unreadable: tuple[str, ...]
    holders: tuple[SecretsHolder, ...]


class Rotation(msgspec.Struct, frozen=True):
    """``left``: damaged secrets that could not be encrypted anew."""

    key_id: str
    names: tuple[str, ...]
    left: tuple[str, ...] = ()


class _Stored(msgspec.Struct, frozen=True):
    current: str | None
    rows: dict[str, Sealed]


class SecretsTable:
    """Call ``refresh`` before the first use; inside ``follow`` it is done every second."""

    def __init__(self, db: Database, ring: KeyRing) -> None:
        self._db = db
        self._ring = ring
        self._stored = _Stored(None, {})
        self._notice = ""

    # --- reading -------------------------------------------------------------------------------------

    @property
    def state(self) -> SecretsState:
        return SecretsState(SecretsPlace.STORE, self._notice)

    def get(self, name: str) -> Secret | None:
        sealed = self._stored.rows.get(name)
        return None if sealed is None else self._ring.open(sealed)

    def find(self, kind: str) -> dict[str, Secret]:
        found = {}
        for name, sealed in self._stored.rows.items():
            if name.startswith(f"{kind}/"):
                try:
                    found[name.partition("/")[2]] = self._ring.open(sealed)
                except SecretUnreadable:
                    continue  # the notice names it
        return found

    def names(self) -> tuple[str, ...]:
        return tuple(self._stored.rows)

    async def refresh(self) -> None:
        try:
            stored = await self._db.read(_read)
        except StoreAway:  # guard: g03 postgresql
            return  # the store reports it, and what is at hand is still right for this process
        if stored != self._stored:
            self._stored = stored
            self._notice = self._describe(stored)

    async def status(self) -> SecretsStatus:
        stored = await self._db.read(_read)
        holders = await self._db.read(_holders)
        return SecretsStatus(
            stored.current,
            tuple(stored.rows),
            self._unreadable(stored),
            tuple(SecretsHolder(holder.machine, tuple(holder.key_ids.split())) for holder in holders),
        )

    def _unreadable(self, stored: _Stored) -> tuple[str, ...]:
        names = []
        for name, sealed in stored.rows.items():
            try:
                self._ring.open(sealed)
            except SecretUnreadable:
                names.append(name)
        return tuple(names)

    def _describe(self, stored: _Stored) -> str:
        if stored.current is not None and stored.current not in self._ring.ids:
            error = _wrong_key(stored.current, self._ring)
            return f"{error.message} {error.hint}"
        unreadable = self._unreadable(stored)
        if not unreadable:
            return ""
        return (
            f"These saved secrets are damaged and cannot be used: {', '.join(unreadable)}. Save them again."
        )

    # --- changing ------------------------------------------------------------------------------------

    async def change(self, changes: Mapping[str, str | None]) -> None:
        await self._db.write(_change, self._ring, dict(changes))
        await self.refresh()

    async def add(self, texts: Mapping[str, str]) -> tuple[str, ...]:
        """Store those whose names are not taken; return the names that are taken with another text."""
        differing = await self._db.write(_add, self._ring, dict(texts))
        await self.refresh()
        return differing

    async def rotate(self) -> Rotation:
        """Encrypt everything with the ring's first key, in one transaction.

        Raises SecretKeyWrong; WrongState if a running server lacks that key. Then nothing is changed.
        """
        done = await self._db.write(_rotate, self._ring)
        await self.refresh()
        return done

    async def reset(self) -> tuple[str, ...]:
        """Delete all secrets and forget the current key, for an owner who has lost it."""
        return await self._db.write(_reset)

    # --- following -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[None]:
        """Keep up with changes of other processes, and let rotations know which keys this one has."""
        holder = self._db.ids.make("prc")
        await self._db.write(_hold, holder, self._ring.ids)
        task = asyncio.create_task(self._poll(holder), name="everturn-secrets")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            try:
                await self._db.write(_release, holder)
            except StoreAway as away:
                _log.info("%s A rotation of the secret key waits a minute for this process.", away.message)

    async def _poll(self, holder: str) -> None:
        polls, said = 0, ""
        while True:
            await asyncio.sleep(_POLL_S)
            polls += 1
            try:
                await self.refresh()
                if polls % _RENEW_POLLS == 0:
                    await self._db.write(_hold, holder, self._ring.ids)
            except StoreAway:
                continue  # the store reports it
            except EverturnError as error:
                if error.message != said:  # once, not every second
                    _log.warning("Stored secrets could not be read again: %s", error.message)
                said = error.message


# --- scripts -------------------------------------------------------------------------------------------


def _read(tx: Tx) -> Script[_Stored]:
    current = yield from _current()
    rows = yield from SECRETS_ALL.all()
    return _Stored(current, {row.name: _to_sealed(row) for row in rows})


def _current() -> Script[str | None]:
    value = yield from RECORD.first(*_KEY)
    return None if value is None else msgspec.json.decode(value, type=str)


def _to_sealed(row: SealedColumns) -> Sealed:
    return Sealed(row.name, row.key_id, bytes(row.nonce), bytes(row.sealed))


def _begin(tx: Tx, ring: KeyRing) -> Script[str]:
    """Lock the secrets and return the key to encrypt with. The first secret decides which that is."""
    yield q("secrets_lock")
    current = yield from _current()
    if current is None:
        yield q("record_put", *_KEY, to_json(ring.first), tx.now)
        return ring.first
    if current not in ring.ids:  # guard: g03 postgresql
        raise _wrong_key(current, ring)
    return current


def _put(tx: Tx, sealed: Sealed) -> Script[None]:
    yield q("secret_put", sealed.name, sealed.key_id, sealed.nonce, sealed.sealed, tx.now)


def _change(tx: Tx, ring: KeyRing, changes: dict[str, str | None]) -> Script[None]:
    key = yield from _begin(tx, ring)
    for name, text in changes.items():
        if text is None:
            yield q("secret_delete", name)
        else:
            yield from _put(tx, ring.seal(key, name, text))


def _add(tx: Tx, ring: KeyRing, texts: dict[str, str]) -> Script[tuple[str, ...]]:
    key = yield from _begin(tx, ring)
    known = {row.name: _to_sealed(row) for row in (yield from SECRETS_ALL.all())}
    for name, text in texts.items():
        if name not in known:
            yield from _put(tx, ring.seal(key, name, text))
    return tuple(name for name in known if name in texts and not _holds(ring, known[name], texts[name]))


def _holds(ring: KeyRing, sealed: Sealed, text: str) -> bool:
    try:
        return ring.open(sealed) == Secret(text)
    except SecretUnreadable:
        return False


def _rotate(tx: Tx, ring: KeyRing) -> Script[Rotation]:
    yield from _begin(tx, ring)
    lacking = [held for held in (yield from _holders(tx)) if ring.first not in held.key_ids.split()]
    if lacking:  # guard: g03 postgresql
        machines = ", ".join(sorted({held.machine for held in lacking}))
        raise WrongState(
            f"{len(lacking)} running {'server lacks' if len(lacking) == 1 else 'servers lack'} the new key "
            f"{ring.first} (on {machines}). Nothing was changed.",
            hint=f"Restart each server with both keys in {VARIABLE}, the new one first; then rotate again.",
        )
    done, left = [], []
    for row in (yield from SECRETS_ALL.all()):
        try:
            text = ring.open(_to_sealed(row)).reveal()
        except SecretUnreadable:  # guard: g03 postgresql
            left.append(row.name)
            continue
        yield from _put(tx, ring.seal(ring.first, row.name, text))
        done.append(row.name)
    yield q("record_put", *_KEY, to_json(ring.first), tx.now)
    return Rotation(ring.first, tuple(done), tuple(left))


def _reset(tx: Tx) -> Script[tuple[str, ...]]:
    yield q("secrets_lock")
    rows = yield q("secrets_clear")
    yield q("record_delete", *_KEY)
    return tuple(sorted(row[0] for row in rows))


def _holders(tx: Tx) -> Script[list[HolderColumns]]:
    return (yield from SECRET_HOLDERS.all(_HOLDER_MS))


def _hold(tx: Tx, holder: str, ids: tuple[str, ...]) -> Script[None]:
    yield q("secret_holder_put", holder, socket.gethostname(), " ".join(ids))


def _release(tx: Tx, holder: str) -> Script[None]:
    yield q("secret_holder_delete", holder, _HOLDER_MS)


def _wrong_key(current: str, ring: KeyRing) -> SecretKeyWrong:
    return SecretKeyWrong(
        f"The saved secrets were encrypted with the key {current}; this server was given "
        f"{', '.join(ring.ids)}. Nothing was changed, and none of them can be used here.",
        hint=f"Start this server with the key {current} in {VARIABLE}. If that key is lost, "
        "'everturn secrets reset' deletes what it encrypted.",
    )
