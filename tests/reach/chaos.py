"""What goes wrong in a campaign: servers that are killed, and faults of the platforms."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Strike(StrEnum):
    """The moment at which a server is killed."""

    ACKNOWLEDGEMENT = "before an acknowledgement"
    RECEIPT = "before a receipt"
    ANY = "at any moment"


class Killer:
    """Kills one of the running servers when a kill is due and its moment has come. The stand-ins ask at each
    acknowledgement and each send."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._due: Strike | None = None
        self.running: list[int] = []  # process ids
        self.done: Counter[Strike] = Counter()

    def prepare(self, strike: Strike) -> None:
        self._due = strike

    @property
    def is_due(self) -> bool:
        return self._due is not None

    def strikes(self, moment: Strike) -> bool:
        """Whether a server was killed now: then the stand-in does not answer."""
        return self._due is moment and self._kill(moment)

    def _kill(self, strike: Strike) -> bool:
        if not self.running:
            return False
        process = self._chance.choice(self.running)
        self.running.remove(process)
        os.kill(process, signal.SIGKILL)
        self._due = None
        self.done[strike] += 1
        return True


class Faults:
    """Decides which requests meet a fault. Nothing goes wrong until ``rate`` is set."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.rate = 0.0
        self.done: Counter[str] = Counter()

    def pick(self, platform: str, *kinds: T) -> T | None:
        """One of the faults, or mostly None."""
        if self._chance.random() >= self.rate:
            return None
        kind = self._chance.choice(kinds)
        self.done[f"{platform}: {kind}".lower()] += 1
        return kind

    def shuffled(self, items: list[T]) -> list[T]:
        return self._chance.sample(items, len(items)) if self.rate else items
