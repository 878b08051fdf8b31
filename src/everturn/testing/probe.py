"""Probes that hold a moment until a test releases it, kill the process at one, or record them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

import anyio

from everturn.domain.probe import Moment, Probe


class _Gate:
    """One held moment: whether it was reached, and whether it is released. Used by threads and tasks."""

    def __init__(self, moment: Moment, subject: str | None, nth: int) -> None:
        self.moment = moment
        self.subject = subject
        self.passings_left = nth
        self.lock = threading.Lock()
        self.is_reached = threading.Event()
        self.is_open = threading.Event()
        self.wakers: list[Callable[[], None]] = []

    def arrives(self, subject: str) -> bool:
        """Whether this passing is the one to hold."""
        if self.subject is not None and subject != self.subject:
            return False
        with self.lock:
            self.passings_left -= 1
            return self.passings_left == 0

    def announce(self, flag: threading.Event) -> None:
        with self.lock:
            flag.set()
            wakers = list(self.wakers)
        for wake in wakers:
            wake()

    async def until(self, flag: threading.Event) -> None:
        """Wait in a task for a flag that any thread may set."""
        event = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if flag.is_set():
                loop.call_soon_threadsafe(event.set)

        with self.lock:
            if flag.is_set():
                return
            self.wakers.append(wake)
        try:
            await event.wait()
        finally:
            with self.lock:
                self.wakers.remove(wake)


class HoldingProbe(Probe):
    """``hold`` a moment, wait until it is ``reached``, do something, ``release`` it.

    A hold catches one passing (the ``nth`` from now, of ``subject`` if given). ``release`` lets it go
    and does not hold later passings. A thread that passes is blocked there.
    """

    def __init__(self, patience_s: float = 60.0) -> None:
        self._patience_s = patience_s  # so that a forgotten release fails instead of hanging
        self._gates: list[_Gate] = []
        self._lock = threading.Lock()
        self._seen: list[tuple[Moment, str]] = []
        self.overdue: list[Moment] = []  # held in a thread for longer than the patience, then released

    def hold(self, moment: Moment, subject: str | None = None, *, nth: int = 1) -> None:
        with self._lock:
            self._gates.append(_Gate(moment, subject, nth))

    async def reached(self, moment: Moment) -> None:
        gate = self._gate(moment)
        with anyio.move_on_after(self._patience_s) as scope:
            await gate.until(gate.is_reached)
        if scope.cancelled_caught:
            raise TimeoutError(f"{moment} was not reached within {self._patience_s:g} s")

    def release(self, moment: Moment) -> None:
        gate = self._gate(moment)
        with self._lock:
            self._gates.remove(gate)
        gate.announce(gate.is_open)

    def release_all(self) -> None:
        for gate in list(self._gates):
            self.release(gate.moment)

    def passings(self, moment: Moment) -> int:
        """How often the moment was passed, held or not."""
        return sum(1 for seen, _ in self._seen if seen is moment)

    async def reach(self, moment: Moment, subject: str = "") -> None:
        gate = self._held_by(moment, subject)
        if gate is not None:
            gate.announce(gate.is_reached)
            with anyio.fail_after(self._patience_s):
                await gate.until(gate.is_open)

    def pass_by(self, moment: Moment, subject: str = "") -> None:
        gate = self._held_by(moment, subject)
        if gate is not None:
            gate.announce(gate.is_reached)
            if not gate.is_open.wait(self._patience_s):
                # Not raised here: it would end the store's writer thread, and everything that waits for that
                # thread, including the end of the test, would wait for ever.
                self.overdue.append(moment)

    def _held_by(self, moment: Moment, subject: str) -> _Gate | None:
        with self._lock:
            self._seen.append((moment, subject))
            gates = [gate for gate in self._gates if gate.moment is moment]
        return next((gate for gate in gates if gate.arrives(subject)), None)

    def _gate(self, moment: Moment) -> _Gate:
        with self._lock:
            for gate in self._gates:
                if gate.moment is moment:
                    return gate
        raise LookupError(f"{moment} is not held")


class KillingProbe(Probe):
    """Ends the process as ``kill -9`` would, at the ``nth`` passing of a moment."""

    def __init__(self, moment: Moment, nth: int = 1, kill: Callable[[int], None] = os._exit) -> None:
        self._moment = moment
        self._left = nth
        self._kill = kill
        self._lock = threading.Lock()

    async def reach(self, moment: Moment, subject: str = "") -> None:
        self.pass_by(moment, subject)

    def pass_by(self, moment: Moment, subject: str = "") -> None:
        if moment is not self._moment:
            return
        with self._lock:
            self._left -= 1
            is_due = self._left == 0
        if is_due:
            self._kill(137)


class RecordingProbe(Probe):
    """Records every moment that is passed, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen: list[tuple[Moment, str]] = []

    @property
    def moments(self) -> list[Moment]:
        with self._lock:
            return [moment for moment, _ in self.seen]

    async def reach(self, moment: Moment, subject: str = "") -> None:
        self.pass_by(moment, subject)

    def pass_by(self, moment: Moment, subject: str = "") -> None:
        with self._lock:
            self.seen.append((moment, subject))
