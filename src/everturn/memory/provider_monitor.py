"""Calls to providers with a time limit, one error type, and a record of how each provider behaves."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from everturn.domain.clock import Clock, call_within
from everturn.domain.errors import EverturnError

_log = logging.getLogger("everturn.memory")

T = TypeVar("T")


class ProviderFailed(EverturnError):
    """A memory provider raised an error or exceeded its time limit. The turns stay owed."""

    code = "memory_provider_failed"
    status = 502


class ProviderState(msgspec.Struct):
    """The last known condition of a provider, for health pages."""

    name: str
    state: str = "ok"  # ok | failing | silent
    error: str = ""
    failures: int = 0  # in a row
    at: int | None = None  # end of the last call


class ProviderMonitor:
    """Calls providers with a time limit and records the result by provider name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, ProviderState] = {}

    def states(self) -> list[ProviderState]:
        return [self._states[name] for name in sorted(self._states)]

    async def call(self, name: str, what: str, seconds: float, act: Callable[[], Awaitable[T]]) -> T:
        """The result of ``act``. Raises ProviderFailed for any error and for a timeout."""
        try:
            result = await call_within(self._clock, seconds, act)
        except TimeoutError:
            message = f"The memory provider {name} did not {what} within {seconds:g} s."
            self._note(name, "silent", message)
            raise ProviderFailed(message, hint="What it was to take stays owed.") from None
        except Exception as error:
            # A provider is foreign code and may raise anything.
            message = f"The memory provider {name} could not {what}: {str(error) or type(error).__name__}"
            if not self._is_known(name, message):
                _log.warning("%s", message, exc_info=error)
            self._note(name, "failing", message)
            raise ProviderFailed(message, hint="What it was to take stays owed.") from error
        self._note(name, "ok", "")
        return result

    def _is_known(self, name: str, message: str) -> bool:
        """Whether the last call failed in the same way, so that its traceback is already in the log."""
        before = self._states.get(name)
        return before is not None and before.error == message

    def _note(self, name: str, state: str, error: str) -> None:
        before = self._states.get(name)
        failures = 0 if state == "ok" else (before.failures + 1 if before else 1)
        self._states[name] = ProviderState(name, state, error, failures, self._clock.now_ms())
