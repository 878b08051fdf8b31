"""Caches the encoded beginning of a long history between requests.

Every request carries the whole history. In a session of thousands of messages nearly all of it was sent in
the previous turn; encoding it again would take longer than everything else before the first token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Call, Message, Role, Text
from everturn.domain.pictures import names_files
from everturn.models.wire import Target, encode

MESSAGES_MIN = 100  # a shorter history is encoded again
BYTES_MAX = 24_000_000  # of all sessions together; the least recently used are dropped first

Build = Callable[[Sequence[Message]], list[JsonObject]]


class _CachedHistory(msgspec.Struct, frozen=True):
    first: Message
    last: Message
    count: int  # of the messages it was made of
    pieces: tuple[msgspec.Raw, ...]
    size: int


class HistoryCache:
    """Encoded histories by model and first message.

    If two histories have the same object at the same place, they are equal up to there, except for the first
    message, which may carry other recalled facts and is compared.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[tuple[str, str, str], _CachedHistory] = {}

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self._kept.values())

    def split(
        self, target: Target, messages: Sequence[Message], build: Build, *, spare: int = 1
    ) -> tuple[tuple[msgspec.Raw, ...], Sequence[Message]]:
        """The encoded beginning and the messages after it; together they equal ``build`` of all messages.

        The last ``spare`` messages of the user are always in the second part.
        """
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
    """Where the cached part can end: after an answer without calls.

    A call then stays with its result, and messages that are merged stay together. Attachments are not cached:
    what is sent of them changes.
    """
    for end in range(start, len(messages)):
        if any(names_files(part) for part in messages[end].parts):
            return _find_closing(messages, end, spare=0)
    return _find_closing(messages, len(messages), spare)


def _find_closing(messages: Sequence[Message], end: int, spare: int) -> int:
    for place in range(end, 0, -1):
        if spare <= 0 and _is_closing(messages[place - 1]):
            return place
        spare -= messages[place - 1].role is Role.USER
    return 0


def _is_closing(message: Message) -> bool:
    if message.role is not Role.ASSISTANT or any(type(part) is Call for part in message.parts):
        return False
    return any(type(part) is Text and not part.is_abandoned and part.text.strip() for part in message.parts)
