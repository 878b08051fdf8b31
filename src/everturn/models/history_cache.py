"""The beginning of a long conversation as a wire has it, kept from one request to the next.

Every request carries the whole history. In a session of thousands of messages nearly all of it was sent a
turn ago; shaping and encoding it again would take longer than everything else before the first token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from everturn.domain.messages import Attachment, Call, Message, Role, Text
from everturn.models.wire import Target, encode

MESSAGES_MIN = 100  # a shorter beginning is as well made again
BYTES_MAX = 24_000_000  # of all conversations together; the longest unused go first

Build = Callable[[Sequence[Message]], list[dict[str, Any]]]


class _CachedHistory(msgspec.Struct, frozen=True):
    first: Message
    last: Message
    count: int  # of the messages it was made of
    pieces: tuple[msgspec.Raw, ...]
    size: int


class HistoryCache:
    """By model and first message. Two histories of which the same object is at the same place are the same up
    to there, but for the first message, which may be given with other memories."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[tuple[str, str, str], _CachedHistory] = {}

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self._kept.values())

    def split(
        self, target: Target, messages: Sequence[Message], build: Build, *, spare: int = 1
    ) -> tuple[tuple[msgspec.Raw, ...], Sequence[Message]]:
        """The encoded beginning, and the messages that follow it, with the last ``spare`` of the user's among
        them. Both together are what ``build`` makes of all messages."""
        if len(messages) <= MESSAGES_MIN:
            return (), messages
        key = (target.name, target.model, messages[0].id)
        kept = self._kept.pop(key, None)
        if kept is None or not _continues(kept, messages):
            kept = _CachedHistory(messages[0], messages[0], 0, (), 0)
        end = _cut(messages, kept.count, spare)
        if end < max(kept.count, MESSAGES_MIN):
            return (), messages
        if end > kept.count:
            new = [encode(piece) for piece in build(messages[kept.count : end])]
            pieces = kept.pieces + tuple(map(msgspec.Raw, new))
            size = kept.size + sum(map(len, new))
            kept = _CachedHistory(messages[0], messages[end - 1], end, pieces, size)
        self._kept[key] = kept
        while self.size > self._bytes_max:
            del self._kept[next(iter(self._kept))]
        return kept.pieces, messages[end:]


def _continues(kept: _CachedHistory, messages: Sequence[Message]) -> bool:
    is_there = kept.count <= len(messages) and messages[kept.count - 1] is kept.last
    return is_there and messages[0] == kept.first


def _cut(messages: Sequence[Message], start: int, spare: int) -> int:
    """Where the beginning can end: behind an answer that wishes nothing, so that no call is parted from its
    result and no two messages that are sent as one. Files end it: what is sent of them changes."""
    for end in range(start, len(messages)):
        if any(type(part) is Attachment for part in messages[end].parts):
            return _closed(messages, end, spare=0)
    return _closed(messages, len(messages), spare)


def _closed(messages: Sequence[Message], end: int, spare: int) -> int:
    for place in range(end, 0, -1):
        if spare <= 0 and _is_closing(messages[place - 1]):
            return place
        spare -= messages[place - 1].role is Role.USER
    return 0


def _is_closing(message: Message) -> bool:
    if message.role is not Role.ASSISTANT or any(type(part) is Call for part in message.parts):
        return False
    return any(type(part) is Text and not part.is_abandoned and part.text.strip() for part in message.parts)
