"""The files of a turn's workspace: recorded before its first call and after each call that may change
them."""

from __future__ import annotations

import logging
from pathlib import Path

from everturn.domain import events as ev
from everturn.domain.checkpoints import Checkpoint
from everturn.domain.errors import Retry, Stopped
from everturn.domain.store_values import Claim
from everturn.domain.tool import Tool, ToolCall
from everturn.engine.services import TurnServices
from everturn.engine.turn_log import TurnLog

_log = logging.getLogger("everturn.engine")


class WorkspaceFiles:
    """Makes checkpoints for one claim of a turn. Without a recorder it does nothing."""

    def __init__(self, services: TurnServices, log: TurnLog, claim: Claim) -> None:
        self._recorder = services.recorder
        self._log = log
        self._claim = claim
        # A call of this turn has begun: changes that are found later may be its work.
        self._has_called = any(event.kind == "tool.started" for event in claim.journal)
        self._is_current = False  # the last checkpoint holds what was there before the next call

    async def find_changes(self, workspace: Path) -> None:
        """Record what was changed since the last checkpoint, by a user or by a call that never reported
        back, so that it does not count as the work of the next call. Later calls of this claim need no such
        look.

        A failure stops no call: what could not be recorded now is in the next checkpoint.
        """
        if self._recorder is None or self._is_current:
            return
        try:
            made = await self._recorder.record(
                self._claim, workspace, None, is_of_parent=not self._has_called
            )
        except (Retry, Stopped) as error:
            _log.warning("turn %s: %s", self._claim.turn.id, error.message)
            return
        self._is_current = True
        if made is not None:
            await self._log.append(_event(made))

    async def record(self, tool: Tool, call: ToolCall, text: str) -> tuple[ev.FilesChanged | None, str]:
        """Record what the call changed: the event that says so, if anything changed, and the text of the
        result.

        Called before the result is journaled, so that the result can name the checkpoint. The call has taken
        effect: if its files cannot be recorded now, its result says so and the next checkpoint holds them.
        """
        if self._recorder is None or tool.spec.reads_only:
            return None, text
        self._has_called = True
        try:
            made = await self._recorder.record(self._claim, call.workspace, call.id)
        except (Retry, Stopped) as error:
            self._is_current = False
            return None, f"{text}\n[The changed files could not be recorded yet: {error.message}]"
        return None if made is None else _event(made), text


def _event(made: Checkpoint) -> ev.FilesChanged:
    found = made.changes
    return ev.FilesChanged(
        made.id, made.call_id, found.changed, found.changed_total, found.left_out, found.left_out_total
    )
