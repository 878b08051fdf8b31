"""A memory provider that records its calls, and can be held, slow, or broken on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio

from everturn.domain.memory import Segment
from everturn.domain.messages import Message
from everturn.testing.waiting import within


class RecordingProvider:
    """``taken`` holds the segments that it took in, in the order of their first arrival.

    ``calls`` holds every call of ``commit`` that got past its gate, repeats included. ``failures`` makes
    that many next commits fail.
    """

    def __init__(self, name: str = "recorder", recalls: str = "", failures: int = 0) -> None:
        self._name = name
        self.recalls = recalls
        self.failures = failures
        self.calls: list[Segment] = []
        self.taken: dict[str, Segment] = {}
        self.observed: list[tuple[str, str]] = []
        self.prompts: list[str] = []
        self.closed = 0
        self.was_closed_at_work = False
        self._at_work = 0
        self._gate: anyio.Event | None = None
        self._entered = anyio.Event()
        self._changed = anyio.Event()

    @property
    def name(self) -> str:
        return self._name

    @property
    def words(self) -> list[str]:
        """The user's messages in all segments that were taken in."""
        return [
            message.text
            for segment in self.taken.values()
            for message in segment.messages
            if message.role == "user"
        ]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold commits that begin inside this context until it ends, even if the test fails."""
        gate = self._gate = anyio.Event()
        self._entered = anyio.Event()
        try:
            yield
        finally:
            gate.set()
            self._gate = None

    async def entered(self) -> None:
        with within(f"a commit reaches the provider {self._name}"):
            await self._entered.wait()

    async def until(self, what: str, condition: Callable[[], object]) -> None:
        """Wait until recorded calls make the condition true; otherwise fail and name ``what``."""
        with within(what):
            while not condition():
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.recalls

    async def observe(self, owner: str, session_id: str, messages: Sequence[Message]) -> None:
        self.observed.append((session_id, messages[0].text if messages else ""))
        self._tell()

    async def commit(self, segment: Segment) -> None:
        gate = self._gate
        self._entered.set()
        if gate is not None:
            self._at_work += 1
            try:
                await gate.wait()
            finally:
                self._at_work -= 1
        self.calls.append(segment)
        self._tell()
        if self.failures > 0:
            self.failures -= 1
            raise ConnectionError("the provider is away")
        self.taken.setdefault(segment.key, segment)

    async def close(self) -> None:
        self.closed += 1
        self.was_closed_at_work |= self._at_work > 0
        self._tell()
