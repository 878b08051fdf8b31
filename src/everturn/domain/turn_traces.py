"""What a trace is told of turns; inert unless traces are on.

A trace is made from the turn's journal, which outlives every worker. So only three things have to be told:
what the journal does not hold (how long accepting and sending took), and that a worker has left a turn.
"""

from __future__ import annotations

import msgspec

from everturn.domain.turns import Turn


class SentPart(msgspec.Struct, frozen=True):
    """One attempt to send a part of a turn's answer to a chat. ``error`` empty: the platform has it."""

    turn_id: str
    part_id: str
    platform: str
    account: str
    attempt: int
    error: str = ""


class TurnTraces:
    """The inert traces. No method waits, and none raises. ``took_s`` is how long it took until now."""

    def turn_accepted(self, turn: Turn, took_s: float) -> None:
        """The message of a turn is durable."""

    def turn_left(self, owner: str, turn_id: str) -> None:
        """A worker runs the turn no longer: it has ended, waits, or was released."""

    def part_sent(self, part: SentPart, took_s: float) -> None:
        """A platform was called with a part of the turn's answer."""
