"""One fault and what was found after it."""

from __future__ import annotations

import traceback
from collections.abc import Coroutine

import msgspec


class Trial(msgspec.Struct, frozen=True):
    kind: str  # kill | power | disk | database | service
    where: str  # the moment of a kill, the way of a cut, the operation or the fault
    seconds: float  # until everything was checked
    failure: str = ""  # what was lost or wrong; empty: nothing


async def failure_of(check: Coroutine[object, object, None]) -> str:
    """The traceback of a check that failed, for the report; empty if it did not fail."""
    try:
        await check
    except Exception:
        return traceback.format_exc()
    return ""


def consists_of(error: BaseException, *kinds: type[BaseException]) -> bool:
    """True if the error, or each error in a group, is of one of these kinds."""
    if isinstance(error, BaseExceptionGroup):
        return all(consists_of(part, *kinds) for part in error.exceptions)
    return isinstance(error, kinds)
