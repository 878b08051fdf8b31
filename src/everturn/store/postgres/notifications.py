"""Notifications about what other processes have written: NOTIFY as a hint, polling as the guarantee.

LISTEN needs a connection that no pooler shares, so it is used only where such an address is given. The
hint is sent beside the write, not inside it: at commit a NOTIFY takes a lock that all share, and group
commits must not queue for it. While one hint is under way, those that follow become one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable

import asyncpg
import msgspec

from everturn.domain.errors import EverturnError
from everturn.store.journal.hub import Hub
from everturn.store.postgres.connection import LOST, Connector
from everturn.store.scripts.script import Rows

CHANNEL = "everturn"
POLL_S = 0.1
POLL_LISTENING_S = 1.0
POLL_OFTEN_S = 30.0  # after events that no hint announced, how long POLL_S is used all the same
POLL_LISTS_S = 1.0
RECONNECT_S = 1.0
HINT_BYTES_MAX = 7_000  # PostgreSQL takes less than 8,000


class Hint(msgspec.Struct, omit_defaults=True):
    """Who wrote, and where; ``is_all``: in more places than fit."""

    by: str
    events: list[str] = []  # session ids
    changed: list[tuple[str, str]] = []  # (session id, owner)
    is_all: bool = False


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Hint)


class ChangeNotifier:
    """``rows`` runs a named query; ``me`` is this process's name, so that it ignores its own hints."""

    def __init__(
        self,
        hub: Hub,
        rows: Callable[[str, list[str]], Awaitable[Rows]],
        direct_address: str | None,
        me: str,
    ) -> None:
        self._hub = hub
        self._rows = rows
        self._direct_address = direct_address
        self._me = me
        self._tasks: list[asyncio.Task[None]] = []
        self._events: set[str] = set()
        self._changed: dict[str, str] = {}
        self._has_hint = asyncio.Event()
        self._lists: dict[str, tuple[int, str]] = {}
        self._hinted: set[str] = set()  # sessions, since the last poll
        self._unhinted: set[str] = set()  # sessions that had news at the last poll, and no hint before it
        self._often_until_s = 0.0
        self.is_listening = False

    def start(self) -> None:
        self._start(self._poll_positions(), "positions")
        self._start(self._poll_lists(), "lists")
        if self._direct_address is not None:
            self._start(self._listen(self._direct_address), "listen")

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"everturn-{name}"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def notify(self, events: Iterable[str], changed: Iterable[tuple[str, str]]) -> None:
        """Notify other processes, soon."""
        if self._direct_address is not None:
            self._events.update(events)
            self._changed.update(changed)
            self._has_hint.set()

    # --- polling -------------------------------------------------------------------------------------

    async def _poll_positions(self) -> None:
        while True:
            trusts_hints = self.is_listening and time.monotonic() >= self._often_until_s
            await asyncio.sleep(POLL_LISTENING_S if trusts_hints else POLL_S)
            followed = self._hub.list_followed()
            if not followed:
                continue
            try:
                rows = await self._rows("positions", followed)
            except EverturnError:
                continue  # the database is away: there is nothing new to read
            positions: dict[str, int] = {}
            for session_id, position in rows:
                positions[session_id] = position
            # One that is not there was deleted: its reader finds out by looking.
            self._judge_hints({one for one in followed if self._hub.notice(one, positions.get(one))})

    def _judge_hints(self, with_news: set[str]) -> None:
        """Poll often for a while if a writer sends no hints: it has no direct address, or its own is broken.

        A hint may come a moment after the poll that was faster, so a session counts only at the next poll.
        """
        if self._unhinted - self._hinted:
            self._often_until_s = time.monotonic() + POLL_OFTEN_S
        self._unhinted = with_news - self._hinted
        self._hinted.clear()

    async def _poll_lists(self) -> None:
        while True:
            await asyncio.sleep(POLL_LISTS_S)
            owners = self._hub.list_watched()
            self._lists = {owner: state for owner, state in self._lists.items() if owner in owners}
            if not owners:
                continue
            try:
                rows = await self._rows("list_state", owners)
            except EverturnError:
                continue  # as above
            for owner, count, versions in rows:
                # Also at first sight: it may have changed since the watcher has read the list.
                if self._lists.get(owner) != (count, versions):
                    self._lists[owner] = (count, versions)
                    self._hub.notice_list(owner)

    # --- hints ---------------------------------------------------------------------------------------

    async def _listen(self, address: str) -> None:
        connector = Connector(address)
        while True:
            try:
                connection = await connector.connect()
            except EverturnError:
                await asyncio.sleep(RECONNECT_S)
                continue
            try:
                await connection.add_listener(CHANNEL, self._on_hint)
                self.is_listening = True
                self._hub.look()  # hints from before this moment were missed
                await self._send_hints(connection)
            except (*LOST, asyncpg.PostgresError):
                await asyncio.sleep(RECONNECT_S)
            finally:
                self.is_listening = False
                connection.terminate()

    async def _send_hints(self, connection: asyncpg.Connection) -> None:
        """Send hints until the connection breaks."""
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        ends = asyncio.create_task(closed.wait(), name="everturn-listen-end")
        try:
            while not closed.is_set():
                wakes = asyncio.create_task(self._has_hint.wait(), name="everturn-listen-hint")
                try:
                    await asyncio.wait({ends, wakes}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    wakes.cancel()  # also when this is cancelled: asyncio logs a task that is left pending
                if self._has_hint.is_set():
                    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, self._take_hint())
        finally:
            ends.cancel()

    def _take_hint(self) -> str:
        hint = Hint(self._me, sorted(self._events), list(self._changed.items()))
        self._events, self._changed = set(), {}
        self._has_hint.clear()
        text = _encoder.encode(hint)
        if len(text) > HINT_BYTES_MAX:
            text = _encoder.encode(Hint(self._me, is_all=True))
        return text.decode()

    def _on_hint(self, connection: object, pid: int, channel: str, payload: object) -> None:
        try:
            hint = _decoder.decode(str(payload))
        except msgspec.MsgspecError:
            self._hub.look()  # a foreign message on our channel: wake all readers
            return
        if hint.by == self._me:
            return
        if hint.is_all:
            self._hinted.update(self._hub.list_followed())
            self._hub.look()
            return
        self._hinted.update(hint.events)
        for session_id in hint.events:
            self._hub.notice(session_id)
        if hint.changed:
            self._hub.publish((), hint.changed)
