"""The files of a turn's workspace: brought to this machine, recorded before its first call and after each
call that may change them, and restored where the user goes back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from everturn.domain import events as ev
from everturn.domain.asks import DoubtAnswer
from everturn.domain.checkpoints import (
    START,
    Cause,
    Changes,
    Checkpoint,
    FilesInDoubt,
    NewCheckpoint,
)
from everturn.domain.errors import (
    BlobDamaged,
    BlobMissing,
    DiskFull,
    DiskReadOnly,
    Fenced,
    Retry,
    Stopped,
    TreeUnreadable,
    WorkspaceUnwritable,
)
from everturn.domain.probe import Moment
from everturn.domain.store_values import Claim
from everturn.domain.tool import Tool, ToolCall
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.working_copies import WorkingCopy
from everturn.engine.file_notes import changed_note, moved_note, notes_in, went_back_note, without_moves
from everturn.engine.services import TurnServices
from everturn.engine.turn_log import TurnLog
from everturn.workspace import Arrival, Arrived, Recorder, hold_folder, run_on_loop

_log = logging.getLogger("everturn.engine")
GOING_BACK: Final = (DoubtAnswer.GO_BACK_AND_RUN, DoubtAnswer.NOT_RUN)
INSTRUCTIONS: Final = b"AGENTS.md"
LOOKED_AT_MAX: Final = 20  # checkpoints, for what was put aside
REPORTED_FILES_MIN: Final = 1000  # fewer are restored before a user could read the progress


class TurnWorkspace:
    """Looks after the files for one claim of a turn. Without a recorder it does nothing."""

    def __init__(self, services: TurnServices, log: TurnLog, claim: Claim) -> None:
        self._services = services
        self._store = services.store
        self._recorder = services.recorder
        self._log = log
        self._claim = claim
        # A call of this turn has begun: changes that are found later may be its work.
        self._has_called = any(event.kind == "tool.started" for event in claim.journal)
        self._is_first_look = True
        self._is_current = False  # the last checkpoint holds what was there before the next call
        self._unrecorded: ToolCall | None = None  # its changes could not be recorded with its result
        self._former_machine = ""  # this claim brought the files from there
        # What the model has to be told with the next result, also what a former worker found.
        self._notes = notes_in(claim.journal)

    def take_note(self) -> str:
        """What to put before the next result; empty if there is nothing to tell."""
        notes, self._notes = self._notes, []
        return "".join(f"{note}\n" for note in notes)

    async def arrive_with_instructions(self, workspace: Path) -> None:
        """Have the files here before the prompt is made, if they come from another machine and AGENTS.md is
        among them. Otherwise they come with the first call: a turn without calls needs none.

        A failure stops no turn: the first call tries again.
        """
        session, recorder = self._claim.session, self._recorder
        if recorder is None or session.project is not None or not self._store.machine.id:
            return
        try:
            if await Arrival(self._store, recorder).is_waiting(session, INSTRUCTIONS):
                await self.arrive(workspace)  # guard: e05 postgresql
        except Fenced:
            raise
        except (Retry, Stopped, BlobDamaged, BlobMissing, TreeUnreadable) as error:
            _log.warning("turn %s: %s", self._claim.turn.id, error.message)

    async def arrive(self, workspace: Path) -> None:
        """Restore the last checkpoint here if it was made on another machine. Before the first call of a
        claim.

        Raises WorkspaceUnwritable, and what the blobs and the store raise: no call may work on files that
        are not there yet.
        """
        if self._recorder is None:
            return
        arrival = Arrival(self._store, self._recorder, self._services.probe)
        with _interrupt_when_unwritable():
            arrived = await arrival.bring(
                self._claim.session, workspace, announce=self._announce, report=self._report
            )
        if arrived is not None:
            changes = arrived.changes
            note = moved_note(
                arrived.former.name,
                changes.left_out,
                changes.left_out_total,
                arrived.kept,
                is_aside=arrived.is_aside,
            )
            self._notes = [*without_moves(self._notes), note]
            self._former_machine = arrived.former.name

    async def _announce(self, arrived: Arrived) -> None:
        changes = arrived.changes
        await self._log.append(
            ev.FilesMoved(
                arrived.checkpoint or START,
                self._store.machine.name,
                arrived.former.name,
                arrived.files,
                changes.left_out,
                changes.left_out_total,
                arrived.former.id,
                arrived.is_aside,
            )
        )

    def _report(self, done: int, total: int) -> None:
        """Called from a thread."""
        if total >= REPORTED_FILES_MIN:
            run_on_loop(self._log.offer, ev.Progress("Restoring files", done, total))

    async def find_changes(self, workspace: Path) -> None:
        """Record what was changed since the last checkpoint, by a user or by a call that never reported
        back, so that it does not count as the work of the next call. Later calls of this claim skip this.

        A failure stops no call: what could not be recorded now is in the next checkpoint.
        """
        if self._recorder is None or self._is_current:
            return
        try:
            await self._find(self._recorder, workspace)
        except (Retry, Stopped) as error:
            _log.warning("turn %s: %s", self._claim.turn.id, error.message)

    async def _find(self, recorder: Recorder, workspace: Path) -> None:
        made = await recorder.record(self._claim, workspace, None, is_of_parent=not self._has_called)
        self._is_current = True
        if made is not None:
            await self._log.append(_event(made))
            if self._is_first_look:  # what a call of this claim changed needs no telling
                self._notes += changed_note(made.changes.changed, made.changes.changed_total)
        self._is_first_look = False

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
        except (Retry, Stopped) as error:  # guard: e01
            self._is_current = False
            self._unrecorded = call
            return None, f"{text}\n[The changed files could not be recorded yet: {error.message}]"
        return None if made is None else _event(made), text

    async def record_late(self) -> None:
        """Record what a call changed while that was not possible. Called when its result is in the journal:
        the database is back then, and no other call has run.

        If it is still not possible, the next look finds the changes.
        """
        call, self._unrecorded = self._unrecorded, None
        if self._recorder is None or call is None:
            return
        try:
            made = await self._recorder.record(self._claim, call.workspace, call.id)
        except (Retry, Stopped) as error:
            _log.warning("turn %s: %s", self._claim.turn.id, error.message)
            return
        self._is_current = True
        if made is not None:
            await self._log.append(_event(made))

    # --- a call in doubt ---------------------------------------------------------------------------

    async def in_doubt(self, call_id: str, workspace: Path) -> FilesInDoubt | None:
        """What the workspace shows about a call that started and never reported back. Nothing is rolled
        back. None if that is not recorded."""
        await self.find_changes(workspace)  # guard: e05
        session, recorder = self._claim.session, self._recorder
        last = await self._store.checkpoints.last(session.owner, session.id)
        if recorder is None or not self._is_current:
            return None
        former = self._find_former_machine(call_id)
        if last is None:
            return FilesInDoubt(START, START, is_elsewhere=bool(former), machine=former)
        tree = await self._tree_before(call_id) or last.tree
        before = await self._store.checkpoints.find_tree(session.owner, session.id, tree)
        after = await self._put_aside(call_id) or last
        changes = await recorder.compare(tree, after.tree)
        return FilesInDoubt(
            before or START, after.id, changes.changed, changes.changed_total, bool(former), former
        )

    async def _put_aside(self, call_id: str) -> Checkpoint | None:
        """What the call left in this folder, if the session went to another machine and came back: that was
        stored when it arrived, and then replaced."""
        started = self._started_epoch(call_id)
        if not any(event.kind == "files.moved" and event.epoch > started for event in self._claim.journal):
            return None
        newest = await self._store.checkpoints.of_session(
            self._claim.session.owner, self._claim.session.id, limit=LOOKED_AT_MAX
        )
        begun_at = next(event.at for event in self._claim.journal if event.epoch == started)
        found = (made for made in newest if made.cause is Cause.FOUND and not made.epoch)
        return next((made for made in found if made.created_at >= begun_at), None)

    async def _tree_before(self, call_id: str) -> str | None:
        """The tree before the first checkpoint that the call, or a look after it, made; None: there is none.

        Checkpoints of an earlier look count too: the worker that made it may have died before it could ask.
        """
        started = self._started_epoch(call_id)
        rows = await self._store.checkpoints.of_turn(self._claim.turn.owner, self._claim.turn.id)
        since = (row.before for row in rows if row.call_id == call_id or row.epoch > started)
        return next(since, None)

    def _started_epoch(self, call_id: str) -> int:
        return max(
            event.epoch
            for event in self._claim.journal
            if isinstance(event.payload, ev.ToolStarted) and event.payload.call_id == call_id
        )

    def _find_former_machine(self, call_id: str) -> str:
        """The machine on which the call ran, if it was another one."""
        started = self._started_epoch(call_id)
        for event in self._claim.journal:
            payload = event.payload if event.kind == "files.moved" and event.epoch > started else None
            if isinstance(payload, ev.FilesMoved):
                is_back = payload.former_id == self._store.machine.id
                return "" if is_back else payload.former_machine
        return self._former_machine

    async def go_back(self, workspace: Path, files: FilesInDoubt) -> None:
        """Restore the files from before a call, after what is there now was recorded. May be repeated.

        Raises WorkspaceUnwritable, Fenced, and what the blobs and the store raise.
        """
        recorder = self._recorder
        if recorder is None or self._claim.session.project is not None:
            return
        async with hold_folder(workspace):
            with _interrupt_when_unwritable():
                await self._go_back(recorder, workspace, files)

    async def _go_back(self, recorder: Recorder, workspace: Path, files: FilesInDoubt) -> None:
        session, checkpoints = self._claim.session, self._store.checkpoints
        await self._find(recorder, workspace)  # guard: e05
        last = await checkpoints.last(session.owner, session.id)
        before = last.tree if last is not None else EMPTY_TREE
        tree = EMPTY_TREE
        if files.before != START:
            tree = (await checkpoints.get(session.owner, session.id, files.before)).tree
        seen = await recorder.look(session, workspace)
        goal = WorkingCopy(present=seen.tree, wanted=tree)
        brought = await recorder.bring(session, workspace, goal, known=seen.folder)
        await self._services.probe.reach(Moment.FILES_RESTORED, self._claim.turn.id)
        rest = brought.rest
        done = Changes(brought.done.changed, brought.done.changed_total, rest.left_out, rest.left_out_total)
        if brought.after.tree != before:
            new = NewCheckpoint(
                turn_id=self._claim.turn.id,
                epoch=self._claim.epoch,
                before=before,
                tree=brought.after.tree,
                changes=done,
                cause=Cause.RESTORED,
            )
            await self._log.append(_event(await checkpoints.put(new)))
            await recorder.remember(session.id, brought.after)
        if done.changed_total or brought.kept:
            self._notes.append(went_back_note(done, brought.kept))


@contextmanager
def _interrupt_when_unwritable() -> Iterator[None]:
    """A disk that is full or read-only interrupts the turn: it can be resumed when that is mended. Released,
    it would be claimed again at once."""
    try:
        yield
    except (DiskFull, DiskReadOnly) as error:
        raise WorkspaceUnwritable(error.message) from error


def _event(made: Checkpoint) -> ev.FilesChanged:
    found = made.changes
    return ev.FilesChanged(
        made.id, made.call_id, found.changed, found.changed_total, found.left_out, found.left_out_total
    )
