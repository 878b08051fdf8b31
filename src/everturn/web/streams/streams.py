"""Open event streams: heartbeats, bounds, readers that do not read, and a clean end for all of them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import anyio

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, Gone, Overloaded
from everturn.web.access.identity import Caller
from everturn.web.background import Background
from everturn.web.http.asgi import Receive, Scope, Send
from everturn.web.http.routing import EVENT_STREAM, Streaming
from everturn.web.streams import sse

_log = logging.getLogger("everturn.web.streams.streams")
_BEATS_PER_HEARTBEAT = 3
_LAST_WORD_S = 1.0

Source = Callable[["EventStream"], Awaitable[str]]
"""Writes to the stream until there is no more; returns why it ended."""


class EventStream(Streaming):
    """One reader. ``source`` runs until it has no more, the reader leaves, or the server stops."""

    def __init__(
        self,
        streams: Streams,
        caller: Caller,
        source: Source,
        *,
        opening: bytes = sse.first_bytes(),
        closing: Callable[[str], bytes] = sse.last_bytes,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self._streams = streams
        self._source = source
        self._opening = opening
        self._closing = closing
        self._headers = headers
        self.caller = caller
        self._send: Send | None = None
        self._abort: Callable[[], None] | None = None
        self._scope: anyio.CancelScope | None = None
        self._reason = ""
        self.written_at = 0.0
        self.writing_since: float | None = None
        self._is_beating = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        self._abort = scope.get("extensions", {}).get("everturn.abort")
        headers = [
            (b"content-type", EVENT_STREAM.encode() + b"; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # or nginx keeps events back
            *self._headers,
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        with self._streams.open(self):
            async with anyio.create_task_group() as group:
                self._scope = group.cancel_scope
                group.start_soon(self._watch, receive, name="stream watch")
                if not self._reason:  # the server may have begun to stop before we had a scope
                    await self._run()
                group.cancel_scope.cancel()
        if self._reason != "gone":
            await self._last_word()

    async def write(self, data: bytes) -> None:
        """Hand bytes to the connection; waits while the reader's buffer is full."""
        assert self._send is not None  # noqa: S101 - a source runs only inside __call__
        self.writing_since = self.written_at = self._streams.now()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.writing_since = None

    def end(self, reason: str) -> None:
        """Stop the source; the reader gets a last event with the reason."""
        self._reason = self._reason or reason
        if self._scope is not None:
            self._scope.cancel()

    def cut_off(self) -> None:
        """Drop a connection whose client reads nothing; a clean end would wait for it forever."""
        self.end("gone")
        if self._abort is not None:
            self._abort()

    async def beat(self) -> None:
        """Send a heartbeat, unless one is still on its way."""
        if self._is_beating or self.writing_since is not None:
            return
        self._is_beating = True
        try:
            await self.write(sse.HEARTBEAT)
        except OSError:
            # The root of a task beside all other streams: this one's connection must not end them.
            self.end("gone")
        finally:
            self._is_beating = False

    async def _run(self) -> None:
        try:
            await self.write(self._opening)
            self._reason = self._reason or await self._source(self)
        except Gone:
            self._reason = "deleted"
        except EverturnError as error:
            self._end_with(error)
        except ExceptionGroup as several:
            expected, others = several.split(EverturnError)
            if others is not None or expected is None:
                raise
            self._end_with(_first(expected))

    def _end_with(self, error: EverturnError) -> None:
        """The head of the answer is out: the stream says that it ends, and the reader comes back."""
        self._reason = self._reason or ("deleted" if isinstance(error, Gone) else "trouble")
        _log.warning("a stream ended: %s", error.message)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end("gone")

    async def _last_word(self) -> None:
        assert self._send is not None  # noqa: S101
        last = self._closing(self._reason or "shutdown")
        with anyio.move_on_after(_LAST_WORD_S, shield=True) as scope:
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        if scope.cancelled_caught and self._abort is not None:
            self._abort()


class Streams(Background):
    """All open streams of this process. One task keeps them alive, cuts off the stuck and ends them."""

    def __init__(
        self,
        clock: Clock,
        still_valid: Callable[[Caller], Awaitable[bool]],
        *,
        heartbeat_s: float,
        send_timeout_s: float,
        streams_max: int,
        per_owner_max: int,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._still_valid = still_valid
        self._heartbeat_s = heartbeat_s
        self._send_timeout_s = send_timeout_s
        self._streams_max = streams_max
        self._per_owner_max = per_owner_max
        self._open: set[EventStream] = set()
        self._by_owner: Counter[str] = Counter()
        self._is_ending = False
        self.cut_off = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def waiting(self) -> int:
        """The number of streams with a write that waits for the client to read."""
        return sum(stream.writing_since is not None for stream in self._open)

    def now(self) -> float:
        return self._clock.monotonic()

    async def close_revoked(self) -> None:
        """End the streams whose credential is no longer valid. Checks each credential once."""
        same: dict[tuple[str, str], list[EventStream]] = {}
        for stream in self._open:
            same.setdefault((stream.caller.way, stream.caller.credential), []).append(stream)
        for streams in same.values():
            if not await self._is_valid(streams[0].caller):
                for stream in streams:
                    stream.end("signed_out")

    async def _is_valid(self, caller: Caller) -> bool:
        try:
            return await self._still_valid(caller)
        except EverturnError as error:
            # The store is away, so credentials cannot be checked; the next round checks again.
            _log.warning("a stream goes on unchecked: %s", error.message)
            return True

    def check_room(self, owner: str) -> None:
        """Raise Overloaded if this owner, or the server, has as many streams as it may."""
        if len(self._open) >= self._streams_max or self._by_owner[owner] >= self._per_owner_max:
            raise Overloaded(
                "There are too many open streams.", hint="Close a tab, or follow several sessions in one."
            )

    def open(self, stream: EventStream) -> _Opened:
        return _Opened(self, stream)

    def end_all(self, reason: str = "shutdown") -> None:
        """Every client gets its last event; streams that begin later end at once."""
        self._is_ending = True
        for stream in list(self._open):
            stream.end(reason)

    def _begin(self) -> None:
        self.group.start_soon(self._keep_alive, name="stream heartbeats")
        self.group.start_soon(self._look_often, name="stream credentials")

    def _end(self) -> None:
        self.end_all()

    async def _keep_alive(self) -> None:
        while True:
            await self._clock.sleep(self._heartbeat_s / _BEATS_PER_HEARTBEAT)
            now = self.now()
            for stream in list(self._open):
                if stream.writing_since is not None:
                    if now - stream.writing_since >= self._send_timeout_s:
                        self.cut_off += 1
                        stream.cut_off()
                elif now - stream.written_at >= self._heartbeat_s:
                    self.group.start_soon(stream.beat, name="stream heartbeat")

    async def _look_often(self) -> None:
        # Beside the heartbeats: a stream on which much happens has none, and a store that takes its time
        # must not hold them up.
        while True:
            await self._clock.sleep(self._heartbeat_s / _BEATS_PER_HEARTBEAT)
            await self.close_revoked()

    def _enter(self, stream: EventStream) -> None:
        self._open.add(stream)
        self._by_owner[stream.caller.owner] += 1
        if self._is_ending:
            stream.end("shutdown")

    def _leave(self, stream: EventStream) -> None:
        self._open.discard(stream)
        self._by_owner[stream.caller.owner] -= 1
        if not self._by_owner[stream.caller.owner]:
            del self._by_owner[stream.caller.owner]


class _Opened:
    """A stream's place among the open ones, for as long as it lasts."""

    def __init__(self, streams: Streams, stream: EventStream) -> None:
        self._streams = streams
        self._stream = stream

    def __enter__(self) -> None:
        self._streams._enter(self._stream)

    def __exit__(self, *_: object) -> None:
        self._streams._leave(self._stream)


def _first(group: BaseExceptionGroup[EverturnError]) -> EverturnError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
