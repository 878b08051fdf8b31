"""Turns of a conversation: each is a message of the user and one chain of answers to it.

Other systems keep messages in a tree. Where an answer was made again, or a message was edited, a node has
several children: each chain becomes a turn of its own beside its siblings, as a retry or an edit does here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from everturn.domain.messages import Role
from everturn.importers.values import ForeignMessage


class ForeignTurn(msgspec.Struct, frozen=True):
    """``key`` names it within its conversation, the same in each export. ``user`` is None for answers that
    follow no message."""

    key: str
    parent: str | None
    user: ForeignMessage | None
    answers: tuple[ForeignMessage, ...]


def turns_of(messages: Sequence[ForeignMessage], current: str | None = None) -> tuple[ForeignTurn, ...]:
    """The turns, parents first. Messages whose parent is missing follow nothing. ``current``: the message
    that the conversation ends with."""
    by_id = {message.id: message for message in messages}
    children: dict[str | None, list[ForeignMessage]] = {}
    for message in by_id.values():
        parent = message.parent if message.parent in by_id else None
        children.setdefault(parent, []).append(message)
    return tuple(_Walk(children, _path_to(current, by_id)).turns())


def _path_to(message_id: str | None, by_id: dict[str, ForeignMessage]) -> frozenset[str]:
    path: set[str] = set()
    while message_id in by_id and message_id not in path:
        path.add(message_id)
        message_id = by_id[message_id].parent
    return frozenset(path)


def turn_with(turns: Sequence[ForeignTurn], message_id: str | None) -> ForeignTurn | None:
    """The turn that a message belongs to."""
    for turn in turns:
        if any(message.id == message_id for message in (turn.user, *turn.answers) if message is not None):
            return turn
    return None


class _Walk:
    """Goes through the tree with a list of its own: a conversation may be thousands of messages deep."""

    def __init__(self, children: dict[str | None, list[ForeignMessage]], path: frozenset[str]) -> None:
        self._children = children
        self._path = path
        self._pending: deque[tuple[ForeignMessage, str | None]] = deque()

    def turns(self) -> Iterator[ForeignTurn]:
        self._pending.extend((message, None) for message in self._children.get(None, ()))
        while self._pending:
            first, parent = self._pending.popleft()
            if first.role is Role.USER:
                yield from self._turns_of(first, parent)
            else:
                yield self._turn(first.id, parent, None, first)

    def _turns_of(self, user: ForeignMessage, parent: str | None) -> Iterator[ForeignTurn]:
        """One for each first answer, or one without any."""
        self._wait(user, user.id)
        starts: list[ForeignMessage | None] = [*self._answers_to(user)] or [None]
        for number, start in enumerate(starts):
            yield self._turn(f"{user.id}/{number}" if number else user.id, parent, user, start)

    def _turn(
        self, key: str, parent: str | None, user: ForeignMessage | None, start: ForeignMessage | None
    ) -> ForeignTurn:
        chain = []
        message = start
        while message is not None:
            chain.append(message)
            self._wait(message, key)
            following = self._answers_to(message)
            # Of several the last was made last, unless the conversation went on from another.
            on_path = [one for one in following if one.id in self._path]
            message = next(iter(on_path or following[-1:]), None)
        return ForeignTurn(key, parent, user, tuple(chain))

    def _answers_to(self, message: ForeignMessage) -> list[ForeignMessage]:
        return [child for child in self._children.get(message.id, ()) if child.role is not Role.USER]

    def _wait(self, message: ForeignMessage, turn: str) -> None:
        """The user's messages that follow become turns of their own."""
        following = self._children.get(message.id, ())
        self._pending.extend((child, turn) for child in following if child.role is Role.USER)
