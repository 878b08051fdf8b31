"""Handles that protect the server: opened by their first call, and plug-ins on threads of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from everturn.domain.memory import MemoryProvider, Segment
from everturn.domain.messages import Message
from everturn.memory.provider_monitor import ProviderFailed

T = TypeVar("T")

# A call of a provider that is open.
ProviderCall = Callable[[MemoryProvider], Coroutine[object, object, T]]


class LazyProvider:
    """A handle that opens its provider on the first call, and tries again on the next one if that fails.

    An error while opening therefore fails one call, which ``ProviderMonitor`` handles, and not the turn that
    asked for a handle.
    """

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

    async def _call(self, act: ProviderCall[T]) -> T:
        if self._provider is None:
            self._provider = self._make()
        return await act(self._provider)


class ThreadedProvider(LazyProvider):
    """A plug-in on its own thread with its own event loop, so that blocking code does not stop the server.

    A call that times out is abandoned: it may go on in the thread, but nothing waits for it.
    """

    def __init__(self, make: Callable[[], MemoryProvider], name: str) -> None:
        super().__init__(make, name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._is_up = threading.Event()
        self._thread: threading.Thread | None = None

    async def close(self) -> None:
        """Ask the plug-in to close, then end its thread when its current call returns."""
        if self._loop is None:
            return
        try:
            await self._call(_close)
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _call(self, act: ProviderCall[T]) -> T:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_loop, name=f"memory {self._name}", daemon=True)
            self._thread.start()
            self._is_up.wait()  # set at the start of the thread, within microseconds
        if self._loop is None or self._loop.is_closed():
            raise ProviderFailed(f"The memory provider {self._name} is closed.")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._inside(act), self._loop))

    async def _inside(self, act: ProviderCall[T]) -> T:
        """Run the call in the plug-in's thread.

        KeyboardInterrupt, SystemExit and unrequested cancellations become ProviderFailed: they would end this
        loop, and then the server's.
        """
        try:
            return await super()._call(act)
        except Exception:
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the caller abandoned the call
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise ProviderFailed(f"The memory provider {self._name} raised {reason}.") from error

    def _run_loop(self) -> None:
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
