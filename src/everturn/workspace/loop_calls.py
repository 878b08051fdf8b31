"""Calls of the event loop from code that runs in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.from_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_on_loop(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run an async function on the event loop from a thread that anyio started, and return its result.

    If the task that waits for the thread was cancelled, this raises its cancellation and the function is not
    called. A function that runs is not interrupted. Clean up with ``clean_up_on_loop``, which always calls.

    ``anyio.from_thread.run`` alone would hang: a call that begins after the cancellation was delivered enters
    the cancelled scope, and its first checkpoint spins until it is cancelled, which never happens.
    """
    anyio.from_thread.check_cancelled()
    return clean_up_on_loop(function, *args)


def clean_up_on_loop(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """The same, also when the waiting task was cancelled."""
    return anyio.from_thread.run(_run_shielded, function, args)


async def _run_shielded(function: Callable[[*Ts], Awaitable[T]], args: tuple[*Ts]) -> T:
    with anyio.CancelScope(shield=True):
        return await function(*args)
    raise AssertionError("never cancelled")  # mypy: a cancelled scope would go on here
