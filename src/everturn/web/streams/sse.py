"""Events as server-sent events. The payload's bytes go out exactly as they were stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.events import AnyPayload, Event
from everturn.domain.ids import check_id

HEARTBEAT = b":\n\n"
_RETRY_MS = 1_000
_RETRY_AT_ONCE_MS = 150
_POSITION_DIGITS_MAX = 18


class SessionEvent(msgspec.Struct, frozen=True):
    """What ``data:`` holds. ``event`` is the payload; ``id:`` and ``event:`` repeat position and kind."""

    session_id: str
    position: int
    turn_id: str | None
    at: int
    event: AnyPayload


class StreamEnd(msgspec.Struct, frozen=True):
    """The last event of a stream: reconnect with the last id that you saw.

    ``reason``: shutdown | signed_out | replayed | deleted | trouble.
    """

    reason: str


def frames(events: Iterable[Event]) -> bytes:
    """A batch of one session's events; each frame's id is its position."""
    return b"".join([b"id: %d\n%b" % (event.position, body(event)) for event in events])


class SharedFrames:
    """Encodes a batch once for all readers that get it one after the other, as those of one session do."""

    def __init__(self) -> None:
        self._events: Sequence[Event] = ()
        self._frames = b""

    def of(self, events: Sequence[Event]) -> bytes:
        if events is not self._events:
            self._events, self._frames = events, frames(events)
        return self._frames


def body(event: Event) -> bytes:
    """A frame without its id."""
    turn = b"null" if event.turn_id is None else b'"%b"' % event.turn_id.encode()
    return b'event: %b\ndata: {"session_id":"%b","position":%d,"turn_id":%b,"at":%d,"event":%b}\n\n' % (
        event.kind.encode(),
        event.session_id.encode(),
        event.position,
        turn,
        event.at,
        event.data,
    )


def plain(kind: str, data: bytes, *, ident: str | None = None) -> bytes:
    """A frame that is no journal event. Without an id the reader keeps the one it has."""
    head = b"" if ident is None else b"id: %b\n" % ident.encode()
    return head + b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def first_bytes() -> bytes:
    return b"retry: %d\n\n" % _RETRY_MS


def last_bytes(reason: str) -> bytes:
    """The last frame: says why, and that the client should reconnect at once."""
    return b"retry: %d\n%b" % (
        _RETRY_AT_ONCE_MS,
        plain("stream.end", msgspec.json.encode(StreamEnd(reason))),
    )


class Cursors:
    """One position per session, written as ``ses_a:12,ses_b:7``: the id of the shared stream's frames."""

    def __init__(self, positions: dict[str, int]) -> None:
        self._positions = dict(positions)

    @property
    def text(self) -> str:
        return ",".join(f"{session}:{position}" for session, position in self._positions.items())

    def frames(self, events: Iterable[Event]) -> bytes:
        """Frames whose ids each name every session's position at that point."""
        made = []
        for event in events:
            self._positions[event.session_id] = event.position
            made.append(b"id: %b\n%b" % (self.text.encode(), body(event)))
        return b"".join(made)

    def drop(self, session_id: str) -> None:
        self._positions.pop(session_id, None)


def position_from(text: str) -> int:
    """Raises Invalid."""
    if not (text.isascii() and text.isdigit() and len(text) <= _POSITION_DIGITS_MAX):
        raise Invalid(
            f"{text[:80]!r} is not a position in a session.",
            hint="Use the id of the last event that you saw, or 0 for all.",
        )
    return int(text)


def positions_from(text: str) -> dict[str, int]:
    """The cursor of the shared stream. Raises Invalid, InvalidId."""
    found = {}
    for item in text.split(","):
        if item.strip():
            session, _, position = item.strip().partition(":")
            found[check_id(session, "ses")] = position_from(position)
    return found
