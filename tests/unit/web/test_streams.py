"""Open streams when the store, or a connection, does not behave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from everturn.domain.errors import StoreAway
from everturn.testing import FakeClock
from everturn.web.access.identity import EVERYTHING, Caller
from everturn.web.streams.sse import HEARTBEAT
from everturn.web.streams.streams import EventStream, Streams

pytestmark = pytest.mark.anyio
BEAT_S = 30.0


class Reader:
    """The other end of a stream: what it was sent, and when it leaves."""

    def __init__(self, *, fails_at: int = 0) -> None:
        self.sent: list[bytes] = []
        self._fails_at = fails_at
        self._arrived = anyio.Event()

    async def send(self, message: Any) -> None:
        body = message.get("body", b"")
        self.sent.append(body)
        self._arrived.set()
        self._arrived = anyio.Event()
        if body == HEARTBEAT and self.beats == self._fails_at:
            raise OSError("The connection is gone.")

    async def receive(self) -> Any:
        await anyio.sleep_forever()

    @property
    def beats(self) -> int:
        return self.sent.count(HEARTBEAT)

    async def heard(self, beats: int) -> None:
        with anyio.fail_after(60):
            while self.beats < beats:
                await self._arrived.wait()


def _streams(clock: FakeClock, still_valid: Callable[[Caller], Awaitable[bool]]) -> Streams:
    return Streams(
        clock, still_valid, heartbeat_s=BEAT_S, send_timeout_s=10.0, streams_max=10, per_owner_max=10
    )


async def _idle(stream: EventStream) -> str:
    await anyio.sleep_forever()
    return ""


def _stream(streams: Streams) -> EventStream:
    return EventStream(streams, Caller("local", EVERYTHING, "open"), _idle)


async def _open(group: Any, streams: Streams, reader: Reader, stream: EventStream | None = None) -> None:
    scope = {"type": "http", "method": "GET"}
    group.start_soon(stream or _stream(streams), scope, reader.receive, reader.send)
    with anyio.fail_after(60):
        while len(reader.sent) < 2:
            await anyio.lowlevel.checkpoint()


async def test_heartbeats_continue_after_the_store_was_away(clock: FakeClock) -> None:
    """Whether the credential is still valid is unknown then; the next check asks again."""
    troubles = [StoreAway("away")]

    async def still_valid(caller: Caller) -> bool:
        if troubles:
            raise troubles.pop()
        return True

    reader = Reader()
    async with anyio.create_task_group() as group:
        async with _streams(clock, still_valid) as streams:
            await _open(group, streams, reader)
            await clock.advance(BEAT_S)
            await clock.advance(BEAT_S)
            await reader.heard(1)
            assert not troubles
        group.cancel_scope.cancel()


async def test_a_stream_on_which_much_happens_ends_too_when_its_credential_does(clock: FakeClock) -> None:
    """It has no heartbeats: an event every second leaves no silence to fill."""
    revoked: set[str] = set()
    looks: list[str] = []

    async def still_valid(caller: Caller) -> bool:
        looks.append(caller.credential)
        return caller.credential not in revoked

    async def busy(stream: EventStream) -> str:
        while True:
            await clock.sleep(1)
            await stream.write(b"event")

    readers = {"one": Reader(), "two": Reader(), "two again": Reader()}
    async with anyio.create_task_group() as group:
        async with _streams(clock, still_valid) as streams:
            for name, reader in readers.items():
                caller = Caller("local", EVERYTHING, "token", name.split()[0])
                await _open(group, streams, reader, EventStream(streams, caller, busy))
            revoked.add("two")
            for _ in range(int(BEAT_S)):
                await clock.advance(1)
            with anyio.fail_after(60):
                while len(streams) > 1:
                    await anyio.lowlevel.checkpoint()
            assert b"signed_out" in readers["two"].sent[-1]
            assert b"signed_out" in readers["two again"].sent[-1]
            assert b"signed_out" not in b"".join(readers["one"].sent)
            assert sorted(looks[:2]) == ["one", "two"], "one look for each credential"
            assert not any(reader.beats for reader in readers.values())
        group.cancel_scope.cancel()


async def test_a_heartbeat_into_a_broken_connection_disturbs_no_other_stream(clock: FakeClock) -> None:
    async def still_valid(caller: Caller) -> bool:
        return True

    broken, whole = Reader(fails_at=1), Reader()
    async with anyio.create_task_group() as group:
        async with _streams(clock, still_valid) as streams:
            await _open(group, streams, broken)
            await _open(group, streams, whole)
            await clock.advance(BEAT_S)
            await whole.heard(1)
            await clock.advance(BEAT_S)
            await whole.heard(2)
            assert len(streams) == 1, "the broken one has ended"
        group.cancel_scope.cancel()
