"""The root of background tasks: their errors are logged and affect no turn."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

from everturn.domain.errors import EverturnError, Refused
from everturn.domain.model_errors import ModelTrouble

Args = TypeVarTuple("Args")

_log = logging.getLogger("everturn.engine")


async def run_logged(name: str, act: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
    try:
        await act(*args)
    except (Refused, ModelTrouble) as error:
        _log.info("%s: %s", name, error.message)
    except EverturnError as error:
        _log.warning("%s: %s", name, error.message)
    except Exception:
        _log.exception("%s failed", name)
