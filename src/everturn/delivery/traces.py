"""Decides which errors are logged with their traceback."""

from __future__ import annotations

from everturn.domain.errors import LeaseLost, Refused, Retry

# Errors whose message is enough: a platform, the network or the store is away, or the platform refuses.
_EXPECTED = (LeaseLost, Refused, Retry, ConnectionError, TimeoutError)


def is_unexpected(error: Exception) -> bool:
    """True if the error may be a bug, so that its trace is worth logging. Tasks raise theirs in groups."""
    if isinstance(error, ExceptionGroup):
        return any(is_unexpected(inner) for inner in error.exceptions)
    return not isinstance(error, _EXPECTED)
