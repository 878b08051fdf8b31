"""Functions of others on threads of their own: one that blocks or never returns delays nothing else."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar, Union

from everturn.tools.schema import ToolFailed

T = TypeVar("T")

RUNNING_MAX: Final = 64  # functions that were given up count until they return
Act = Callable[[], Union[T, Awaitable[T]]]


class TooManyRunning(ToolFailed):
    """Nothing was started: as many functions as may are still running."""


class ThreadEnded(Exception):
    """The function raised what would end the program, such as SystemExit."""


class ToolThreads:
    """Runs functions in daemon threads, so that one that never returns does not hold up the end of the
    program either."""

    def __init__(self) -> None:
        self._running = 0

    async def run(self, act: Act[T], name: str) -> T:
        """What the function returns; if that is awaitable, it is awaited in the thread.

        If cancelled, a coroutine is cancelled too. A plain function cannot be stopped: it goes on, and what
        it returns is dropped. Raises TooManyRunning, and what the function raises.
        """
        if self._running >= RUNNING_MAX:
            raise TooManyRunning(
                f"Nothing was done: {RUNNING_MAX} functions of the user are still running. Try again later."
            )
        self._running += 1
        call = _Call(act, asyncio.get_running_loop(), self._count_down)
        threading.Thread(target=call.run, name=name, daemon=True).start()
        try:
            return await call.done
        except asyncio.CancelledError:
            call.cancel()
            raise

    def _count_down(self) -> None:
        self._running -= 1


class _Call(Generic[T]):
    def __init__(self, act: Act[T], home: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        self._act = act
        self._home = home
        self._on_end = on_end
        self.done: asyncio.Future[T] = home.create_future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None

    def run(self) -> None:
        """In the thread. Every error reaches the caller: nothing else reports the errors of a thread."""
        try:
            value = self._act()
            answer: T = asyncio.run(self._wait_for(value)) if inspect.isawaitable(value) else value
        except Exception as error:
            self._tell(self._fail, error)
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            self._tell(self._fail, ThreadEnded(f"it raised {reason}"))
        else:
            self._tell(self._succeed, answer)

    def cancel(self) -> None:
        loop, task = self._loop, self._task
        if loop is None or task is None:
            return
        try:
            loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:
            return  # the coroutine has ended meanwhile, and its loop with it

    async def _wait_for(self, value: Awaitable[T]) -> T:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        return await value

    def _tell(self, act: Callable[..., None], *args: object) -> None:
        try:
            self._home.call_soon_threadsafe(act, *args)
        except RuntimeError:
            return  # the program ends, and the caller with it

    def _succeed(self, value: T) -> None:
        self._on_end()
        if not self.done.done():
            self.done.set_result(value)

    def _fail(self, error: Exception) -> None:
        self._on_end()
        if not self.done.done():
            self.done.set_exception(error)
