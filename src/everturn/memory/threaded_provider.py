"""Keeping a provider's slowness and failures to itself: bounded time, a stated outcome, a visible state."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from everturn.domain.clock import Clock, call_within
from everturn.domain.errors import EverturnError
from everturn.domain.memory import MemoryProvider, Segment
from everturn.domain.messages import Message

_log = logging.getLogger("everturn.memory")

T = TypeVar("T")


class ProviderFailed(EverturnError):
    """A memory provider raised, or took longer than it may. What it was to take is still owed."""

    code = "memory_provider_failed"
    status = 502


class ProviderState(msgspec.Struct):
    """How a provider has been lately, for people."""

    name: str
    state: str = "ok"  # ok | failing | silent
    error: str = ""
    failures: int = 0  # in a row
    at: int | None = None  # of the last call that ended


class ProviderMonitor:
    """Calls providers within bounds and remembers how they behaved, by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, ProviderState] = {}

    def states(self) -> list[ProviderState]:
        return [self._states[name] for name in sorted(self._states)]

    async def call(self, name: str, what: str, seconds: float, act: Callable[[], Awaitable[T]]) -> T:
        """Raises ProviderFailed, whatever the provider did."""
        try:
            result = await call_within(self._clock, seconds, act)
        except TimeoutError:
            message = f"The memory provider {name} did not {what} within {seconds:g} s."
            self._note(name, "silent", message)
            raise ProviderFailed(message, hint="What it was to take stays owed.") from None
        except Exception as error:
            # The boundary to code that is not ours: anything may come out of it.
            message = f"The memory provider {name} could not {what}: {str(error) or type(error).__name__}"
            if not self._is_known(name, message):
                _log.warning("%s", message, exc_info=error)
            self._note(name, "failing", message)
            raise ProviderFailed(message, hint="What it was to take stays owed.") from error
        self._note(name, "ok", "")
        return result

    def _is_known(self, name: str, message: str) -> bool:
        """Whether it failed in the same way the last time: its traceback is in the log already."""
        before = self._states.get(name)
        return before is not None and before.error == message

    def _note(self, name: str, state: str, error: str) -> None:
        before = self._states.get(name)
        failures = 0 if state == "ok" else (before.failures + 1 if before else 1)
        self._states[name] = ProviderState(name, state, error, failures, self._clock.now_ms())


class LazyProvider:
    """A handle whose provider is opened by its first call, and by the next one if that failed. So an ``open``
    that raises fails the call, which its caller contains, and not the turn that asked for a handle."""

    def __init__(self, make: Callable[[], MemoryProvider], name: str) -> None:
        self._make = make
        self._name = name
        self._provider: MemoryProvider | None = None

    @property
    def name(self) -> str:
        return self._name

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        return await self._call(lambda provider: _recall(provider, owner, session_key, prompt))

    async def holds(self, owner: str, recalled: str) -> bool:
        return await self._call(lambda provider: _holds(provider, owner, recalled))

    async def observe(self, owner: str, session_id: str, messages: Sequence[Message]) -> None:
        await self._call(lambda provider: _observe(provider, owner, session_id, messages))

    async def commit(self, segment: Segment) -> None:
        await self._call(lambda provider: _commit(provider, segment))

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()

    async def _call(self, act: Callable[[MemoryProvider], Coroutine[Any, Any, T]]) -> T:
        if self._provider is None:
            self._provider = self._make()
        return await act(self._provider)


class ThreadedProvider(LazyProvider):
    """A plug-in on a thread and a loop of its own, so that code that blocks holds up nobody else.

    Giving a call up leaves it alone: its thread may go on, nobody waits for it.
    """

    def __init__(self, make: Callable[[], MemoryProvider], name: str) -> None:
        super().__init__(make, name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._is_up = threading.Event()
        self._thread: threading.Thread | None = None

    async def close(self) -> None:
        """Ask the plug-in to close, then end its thread as soon as that returns from what it does."""
        if self._loop is None:
            return
        try:
            await self._call(_close)
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _call(self, act: Callable[[MemoryProvider], Coroutine[Any, Any, T]]) -> T:
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name=f"memory {self._name}", daemon=True)
            self._thread.start()
            self._is_up.wait()  # the thread's first act: microseconds
        if self._loop is None or self._loop.is_closed():
            raise ProviderFailed(f"The memory provider {self._name} is closed.")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._inside(act), self._loop))

    async def _inside(self, act: Callable[[MemoryProvider], Coroutine[Any, Any, T]]) -> T:
        """In the plug-in's thread. Whatever it raises becomes an error of its own: an interrupt, an exit or a
        cancellation that nobody asked for would otherwise end this loop and the server's."""
        try:
            return await super()._call(act)
        except Exception:
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # we gave it up
            said = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise ProviderFailed(f"The memory provider {self._name} raised {said}.") from error

    def _live(self) -> None:
        asyncio.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_up.set()
        await self._stop.wait()


async def _recall(provider: MemoryProvider, owner: str, session_key: str, prompt: str) -> str:
    return await provider.recall(owner, session_key, prompt)


async def _holds(provider: MemoryProvider, owner: str, recalled: str) -> bool:
    ask = getattr(provider, "holds", None)
    return True if ask is None else bool(await ask(owner, recalled))


async def _observe(
    provider: MemoryProvider, owner: str, session_id: str, messages: Sequence[Message]
) -> None:
    await provider.observe(owner, session_id, messages)


async def _commit(provider: MemoryProvider, segment: Segment) -> None:
    await provider.commit(segment)


async def _close(provider: MemoryProvider) -> None:
    await provider.close()
