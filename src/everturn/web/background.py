"""Tasks that run beside the requests while a context is open."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio
import anyio.abc


class Background:
    """Entering starts the tasks of ``_begin``; leaving cancels them and waits for their end."""

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup | None = None

    @property
    def group(self) -> anyio.abc.TaskGroup:
        assert self._group is not None  # noqa: S101 - nothing runs outside the context
        return self._group

    def _begin(self) -> None:
        """Start the tasks in ``group``. Must not fail: the context is already entered."""

    def _end(self) -> None:
        """Runs before the tasks are cancelled."""

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._end()
        self.group.cancel_scope.cancel()
        return await self.group.__aexit__(kind, error, trace)
