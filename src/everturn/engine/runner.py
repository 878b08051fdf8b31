"""Claims turns and runs each in its own named task, in one task group."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from everturn.domain.clock import Clock
from everturn.domain.errors import (
    EverturnError,
    Fenced,
    Gone,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    Retry,
    Stopped,
    StoreBroken,
    StoreTooNew,
)
from everturn.domain.probe import Moment
from everturn.domain.store_values import Accepted, Claim, Submission, WhenBusy
from everturn.domain.turns import Failure, WriterPosition
from everturn.engine.agents import Agents
from everturn.engine.loop import LoopResult, TurnLoop
from everturn.engine.services import TurnServices
from everturn.engine.turn_log import TurnLog
from everturn.engine.turn_writer import TurnWriter, WriterLimits

_log = logging.getLogger("everturn.engine")
_NOT_OURS = (Fenced, Gone, NotFound)  # another worker has the turn, or the session is deleted
_OVER = (StoreBroken, StoreTooNew)  # this process must not write any more

_LOCKED_PAUSE_S = 0.02  # before a claim is repeated that met a session which another transaction was writing
_ACCEPTING_MAX = 4  # turns that are accepted and claimed in one step at the same time


class RunningTurn:
    """A turn that this worker holds: its claim, its loop, and the scope that ends its task."""

    def __init__(self, claim: Claim, clock: Clock) -> None:
        self.claim = claim
        self._clock = clock
        self.scope = anyio.CancelScope()
        self.is_handing_over = False
        self.loop: TurnLoop | None = None
        self.log: TurnLog | None = None
        self.appended_at = 0.0

    @property
    def id(self) -> str:
        return self.claim.turn.id

    def mark_durable(self) -> None:
        """Record that events became durable: at this time the turn was still ours."""
        self.appended_at = self._clock.monotonic()


class Runner:
    """Claims work when nudged and at intervals, renews the lease, and takes over dead workers' turns.

    ``run`` ends when ``stop`` was called and every turn has been released.
    """

    def __init__(
        self,
        services: TurnServices,
        agents: Agents,
        worker: str,
        on_end: Callable[[Claim, LoopResult], Awaitable[None]],
    ) -> None:
        self._services = services
        self._agents = agents
        self.worker = worker
        self._on_end = on_end
        self._turns: dict[str, RunningTurn] = {}
        self._by_session: dict[str, RunningTurn] = {}
        self._owners: Counter[str] = Counter()  # of the turns that run, and of those being accepted to run
        self._accepting = 0  # places kept for turns that are being accepted
        self._claim_ended = anyio.Event()  # a new one for each claim; set when the claim is over
        self._claim_ended.set()
        self._may_hold_more = False  # the outcome of a claim is unknown: we may hold turns that no task runs
        self._nudged = anyio.Event()
        self._idle = anyio.Event()
        self._group: anyio.abc.TaskGroup | None = None
        self.is_stopping = False
        self.trouble = ""  # why nothing is claimed at the moment, if so

    # --- what others may ask -----------------------------------------------------------------------

    def nudge(self) -> None:
        """Look for work now."""
        self._nudged.set()

    def holds(self, turn_id: str) -> bool:
        return turn_id in self._turns

    def cancel_task(self, turn_id: str) -> None:
        """Cancel the local task of a turn that has already ended in the store."""
        running = self._turns.get(turn_id)
        if running is not None:
            running.scope.cancel()

    def cancel_session_task(self, session_id: str, *, but: str = "") -> None:
        running = self._by_session.get(session_id)
        if running is not None and running.id != but:
            running.scope.cancel()

    @property
    def running(self) -> int:
        return len(self._turns)

    # --- accepting ---------------------------------------------------------------------------------

    async def accept(self, owner: str, session_id: str, submission: Submission) -> Accepted:
        """Accept a message. If its turn can run here now, it is claimed in the same transaction."""
        is_interrupting = submission.when_busy == WhenBusy.INTERRUPT
        if self._group is not None and not is_interrupting and self._has_place(owner):
            heard: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
            self._accepting += 1
            self._owners[owner] += 1
            # In a task of its own: if the caller is cancelled, the claimed turn must still be run. Otherwise
            # it would block its session for as long as this process lives.
            self._group.start_soon(self._accept_here, owner, session_id, submission, heard, name="accept")
            return await heard
        accepted = await self._services.store.turns.accept(owner, session_id, submission)
        if is_interrupting and not accepted.is_repeat:
            self.cancel_session_task(session_id, but=accepted.turn.id)
        self.nudge()
        return accepted

    def _has_place(self, owner: str) -> bool:
        """True if accepting may also claim the turn of this owner.

        Not on PostgreSQL: a commit there can have an unknown outcome, which would leave the turn without a
        worker. Of many messages at once only the first few are claimed here. The others are claimed in
        batches, so that running turns do not wait while hundreds start in one transaction.
        """
        settings = self._services.settings
        return (
            self._services.store.has_certain_commits
            and not self.is_stopping
            and self._services.lease.is_held
            and self._accepting < _ACCEPTING_MAX
            and len(self._turns) + self._accepting < settings.server_turns_max
            and self._owners[owner] < settings.owner_turns_max
        )

    async def _accept_here(
        self, owner: str, session_id: str, submission: Submission, heard: asyncio.Future[Accepted]
    ) -> None:
        claim: Claim | None = None
        try:
            accepted, claim = await self._services.store.turns.accept_and_claim(
                self.worker, owner, session_id, submission
            )
            if not heard.done():  # or the caller has gone
                heard.set_result(accepted)
        except Exception as error:
            if heard.done():
                _log.warning(
                    "accepting for %s, who has gone: %s", session_id, error, exc_info=_unless_ours(error)
                )
            else:
                heard.set_exception(error)
        finally:
            self._accepting -= 1
            self._release_owner(owner)
            if claim is not None:
                self._start(claim)
            self._idle.set()
            if not heard.done():
                heard.set_exception(Overloaded("The server is stopping.", hint="Send it again in a moment."))

    # --- life --------------------------------------------------------------------------------------

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        store = self._services.store
        await store.workers.register(self.worker)
        await self._renew()
        await store.workers.take_over(self.worker)  # guard: c01
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._claim_forever, name="claims")
            group.start_soon(self._every, self._services.settings.heartbeat_s, self._renew, name="lease")
            group.start_soon(
                self._every, self._services.settings.take_over_s, self.take_over, name="take-over"
            )
            group.start_soon(
                self._every, self._services.settings.lost_poll_s, self._look_for_lost, name="lost"
            )
            group.start_soon(
                self._every, self._services.settings.lost_poll_s, self._look_for_silence, name="silence"
            )
            task_status.started()

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more, give the running turns this long, then release the rest."""
        self.is_stopping = True
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._end_after, grace_s, scope, name="grace")
                await self._wait_idle()
                group.cancel_scope.cancel()
        # A claim made after the worker has unregistered would leave its turn without a worker.
        with anyio.move_on_after(self._services.settings.drain_s):
            await self._claim_ended.wait()
        for running in list(self._turns.values()):
            running.is_handing_over = True
            running.scope.cancel()
        await self._wait_idle()
        if self._group is not None:
            self._group.cancel_scope.cancel()
        try:
            await self._services.store.workers.unregister(self.worker)
        except (Retry, Stopped) as error:
            # Its lock ends with this process. The next worker finds it dead and takes its turns over.
            _log.warning("worker %s could not retire: %s", self.worker, error.message)

    async def take_over(self) -> int:
        """Release the turns of dead workers, and look for work if there were any."""
        count = await self._services.store.workers.take_over(self.worker)
        if count:
            self.nudge()
        return count

    async def _end_after(self, seconds: float, scope: anyio.CancelScope) -> None:
        await self._services.clock.sleep(seconds)
        scope.cancel()

    async def _wait_idle(self) -> None:
        while self._turns or self._accepting:
            # One shared event: stopping and a lost lease may wait at the same time.
            if self._idle.is_set():
                self._idle = anyio.Event()
            await self._idle.wait()

    # --- claiming ----------------------------------------------------------------------------------

    async def _claim_forever(self) -> None:
        while not self.is_stopping:
            # Cleared before claiming, so that a nudge during the claim is not lost.
            self._nudged = anyio.Event()
            try:
                has_more = await self._claim_some()
            except Exception as error:
                # The root of a task: log the error, show it in the status, try again.
                _log.exception("claiming failed")
                self.trouble = f"{type(error).__name__}: {error}"
                has_more = False
            if not has_more:
                await self._wait_nudge()

    async def _wait_nudge(self) -> None:
        if self._services.store.turns.has_locked:
            # The transaction in the way ends without telling anyone, and its session's turn must not wait
            # for the next poll. In real time, because no clock of ours moves a database.
            with anyio.move_on_after(_LOCKED_PAUSE_S):
                await self._nudged.wait()
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_after, self._services.settings.poll_s, group.cancel_scope, name="poll")
            await self._nudged.wait()
            group.cancel_scope.cancel()

    async def _claim_some(self) -> bool:
        """Claim turns that may run now; True if there may be more."""
        settings = self._services.settings
        room = settings.server_turns_max - len(self._turns) - self._accepting
        if room <= 0 or not self._services.lease.is_held or self._group is None:
            return False
        full = tuple(owner for owner, count in self._owners.items() if count >= settings.owner_turns_max)
        limit = min(room, settings.claim_batch_max)
        if settings.owner_turns_max < settings.server_turns_max:
            limit = 1  # so that one claim cannot take an owner past the limit
        self._claim_ended = anyio.Event()
        try:
            await self._release_unknown_claims()
            claims = await self._services.store.turns.claim(self.worker, limit=limit, without_owners=full)
            self.trouble = ""
        except (Retry, Stopped) as error:
            self._may_hold_more = self._may_hold_more or isinstance(error, OutcomeUnknown)
            self._report_trouble(error)
            return False
        finally:
            self._claim_ended.set()
        for claim in claims:
            self._start(claim)
        return bool(claims)

    async def _release_unknown_claims(self) -> None:
        """Release turns of a claim whose outcome was unknown: they are ours, and no task runs them."""
        if self._may_hold_more:
            for turn_id, epoch in await self._services.store.turns.list_held(self.worker):
                if turn_id not in self._turns:
                    with contextlib.suppress(*_NOT_OURS):  # ended or deleted since we looked
                        await self._services.store.turns.hand_over(turn_id, epoch)
            self._may_hold_more = False

    def _report_trouble(self, error: EverturnError) -> None:
        if self.trouble != error.message:
            _log.error("no turn can be claimed: %s", error.message)
        self.trouble = error.message

    def _start(self, claim: Claim) -> None:
        assert self._group is not None  # noqa: S101 - claims are made only while the group is open
        running = RunningTurn(claim, self._services.clock)
        self._turns[running.id] = running
        self._by_session[claim.turn.session_id] = running
        self._owners[claim.turn.owner] += 1
        self._group.start_soon(self._run_turn, running, name=f"turn {running.id}")

    # --- one turn ----------------------------------------------------------------------------------

    async def _run_turn(self, running: RunningTurn) -> None:
        """The root of a turn's task: no error of a turn leaves it."""
        try:
            await self._services.probe.reach(Moment.CLAIM_COMMITTED, running.id)
            ended = await self._run_loop(running)
        finally:
            self._forget(running)
            await self._leave(running)
        if ended is not None:
            await self._on_end(running.claim, ended)

    async def _leave(self, running: RunningTurn) -> None:
        """End what lived only while this worker ran the turn, however that came to its end."""
        with anyio.CancelScope(shield=True):
            try:
                await self._services.toolbox.leave(running.id)
            except Exception:  # it must not end the turns of others
                _log.exception("what turn %s left behind could not be ended", running.id)
        self._services.traces.turn_left(running.claim.turn.owner, running.id)

    def _forget(self, running: RunningTurn) -> None:
        owner, session_id = running.claim.turn.owner, running.claim.turn.session_id
        self._turns.pop(running.id, None)
        if self._by_session.get(session_id) is running:
            del self._by_session[session_id]
        self._release_owner(owner)
        self._idle.set()
        self.nudge()  # the session's next turn may be waiting

    def _release_owner(self, owner: str) -> None:
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]

    async def _run_loop(self, running: RunningTurn) -> LoopResult | None:
        """Run the loop and its writer. If the loop fails, release or end the turn."""
        claim, services = running.claim, self._services
        writer = TurnWriter(
            services.store.journal,
            WriterPosition(claim.turn.id, claim.epoch, claim.number),
            clock=services.clock,
            limits=WriterLimits(services.settings.outstanding_bytes_max, services.settings.store_retry_s),
            on_failure=running.scope.cancel,
            on_durable=running.mark_durable,
        )
        running.log = TurnLog(claim, writer, services.clock)
        result: LoopResult | None = None
        error: Exception | None = None
        async with anyio.create_task_group() as group:
            # The writer is outside the scope: a turn that is released still makes its last events durable.
            group.start_soon(writer.run, name=f"writer of {claim.turn.id}")
            with running.scope:
                try:
                    own = await services.for_owner(claim.turn.owner)
                    running.loop = TurnLoop(own, self._agents, claim, running.log, lambda: self.is_stopping)
                    result = await running.loop.run()
                except Exception as raised:
                    error = writer.failure or raised
                    if error is not raised and _unless_ours(raised):
                        _log.error("turn %s broke off", claim.turn.id, exc_info=raised)
            if result is None:
                await self._settle_broken_off(running)
                await self._release(running, writer, error or writer.failure)
            group.cancel_scope.cancel()
        return result

    async def _settle_broken_off(self, running: RunningTurn) -> None:
        """Count the model call that was cut short. If that fails, its whole reservation counts."""
        with anyio.move_on_after(self._services.settings.drain_s):
            try:
                if running.loop is not None:
                    await running.loop.spending.settle_broken_off()
            except EverturnError as error:
                _log.info("turn %s: its last model call is not settled: %s", running.id, error.message)

    async def _release(self, running: RunningTurn, writer: TurnWriter, error: Exception | None) -> None:
        """Release or end a turn whose loop has no result: the loop or its writer failed, or the worker stops.
        If the turn was cancelled, that is durable already and nothing is left to do."""
        if error is not None:
            await self._drain_writer(running, writer, error)
            await self._end_failed(running, error)
        elif running.is_handing_over:
            await self._hand_over(running, writer)

    async def _drain_writer(self, running: RunningTurn, writer: TurnWriter, reason: Exception) -> None:
        """Write the turn's last events before its end, after which the journal accepts none. If the store is
        unavailable, wait for it: the result of a finished tool may be among them."""
        is_resting = False
        while not is_resting:
            with anyio.move_on_after(self._services.settings.drain_s) as scope:
                try:
                    await writer.quiet()
                except Exception as error:
                    # Usually the same error that the turn ends with.
                    _log.info("a turn ends without its last events: %r", error, exc_info=_unless_ours(error))
            waits = scope.cancelled_caught and isinstance(reason, Retry) and not running.is_handing_over
            is_resting = not waits

    async def _hand_over(self, running: RunningTurn, writer: TurnWriter) -> None:
        with anyio.move_on_after(self._services.settings.drain_s):
            try:
                await writer.quiet()
                await self._services.store.turns.hand_over(running.id, running.claim.epoch)
            except EverturnError as error:
                # The lock or lease ends with this process, and another worker takes the turn over.
                _log.warning("turn %s was not handed over: %s", running.id, error.message)

    async def _end_failed(self, running: RunningTurn, error: Exception) -> None:
        """End, interrupt or release the turn by the kind of error, unless another worker has it."""
        if isinstance(error, _NOT_OURS):
            _log.info("turn %s is not ours any more: %s", running.id, error)
        elif isinstance(error, Retry):
            # Nothing is wrong with the turn: the next worker continues from its journal.
            _log.warning("turn %s is released: %s", running.id, error.message)
            await self._retry_until_stored(running, self._services.store.turns.hand_over)
        elif isinstance(error, Stopped):
            # The journal is safe. The user can resume the turn once the cause is fixed.
            await self._retry_until_stored(running, self._services.store.turns.interrupt, _failure(error))
        else:
            if not isinstance(error, EverturnError):
                _log.error("turn %s failed", running.id, exc_info=error)
            failure = _failure(error)
            await self._retry_until_stored(running, self._services.store.turns.fail, failure)  # guard: a09

    async def _retry_until_stored(
        self, running: RunningTurn, act: Callable[..., Awaitable[object]], *args: object
    ) -> None:
        """Repeat the call until the store accepts it: a turn without an end would block its session. An error
        is logged once, and again when it changes: a full disk has no room for a line a second."""
        said = ""
        while True:
            try:
                await act(running.id, running.claim.epoch, *args)
                return
            except _NOT_OURS:
                return
            except _OVER as error:
                _log.error("turn %s could not be ended yet: %s", running.id, error.message)
                return
            except (Retry, Stopped) as error:
                if error.message != said:
                    _log.warning("turn %s could not be ended yet: %s", running.id, error.message)
                said = error.message
            except Exception as error:  # guard: a09
                # An error here must not end the task: it would end all turns of this worker.
                if repr(error) != said:
                    _log.exception("turn %s could not be ended yet", running.id)
                said = repr(error)
            if running.is_handing_over:
                return
            await self._services.clock.sleep(self._services.settings.store_patience_s)

    # --- looking after things ----------------------------------------------------------------------

    async def _every(self, seconds: float, act: Callable[[], Awaitable[object]]) -> None:
        """Call something regularly. If the store refuses it now, the next call may succeed."""
        while True:
            await self._services.clock.sleep(seconds)
            try:
                await act()
            except (Retry, Stopped) as error:
                _log.warning("%s: %s", getattr(act, "__name__", "task"), error.message)
            except Exception:  # guard: a09
                # The root of a task: log the error and try again. It must not end any turn.
                _log.exception("%s failed", getattr(act, "__name__", "task"))

    async def _renew(self) -> None:
        asked_at = self._services.clock.monotonic()
        if not self._services.store.has_leases:
            self._services.lease.hold_forever()
            return
        if await self._services.store.workers.heartbeat(self.worker):
            self._services.lease.renew(asked_at)
            return
        # Other workers may have our turns: cancel all of them, then register again under the same name.
        self._services.lease.drop()
        for running in list(self._turns.values()):
            _log.warning("turn %s is not ours any more: the lease ran out", running.id)
            running.scope.cancel()
        await self._wait_idle()
        await self._services.store.workers.register(self.worker)
        self._services.lease.renew(asked_at)
        self.nudge()

    async def _look_for_lost(self) -> None:
        """Cancel turns that another process has ended or taken. A turn that appends finds out by itself."""
        now = self._services.clock.monotonic()
        quiet = [
            (running.id, running.claim.epoch)
            for running in self._turns.values()
            if now - running.appended_at >= self._services.settings.lost_poll_s
        ]
        if quiet:
            for turn_id in await self._services.store.turns.find_lost(quiet):
                _log.info("turn %s is not ours any more: another process has written it", turn_id)
                self.cancel_task(turn_id)

    async def _look_for_silence(self) -> None:
        """Cancel model calls that have sent nothing for too long. Each becomes an attempt that timed out."""
        latest = self._services.clock.monotonic() - self._services.settings.model_silence_max_s
        for running in list(self._turns.values()):
            if running.log is None or running.loop is None or running.log.writer.is_full:
                continue  # silence counts only once the store has taken what the model has said
            if running.log.last_sign_at < latest:
                running.loop.break_silence()


def _unless_ours(error: Exception) -> Exception | None:
    """The error if it is not one of our own types, so that its traceback is logged."""
    return None if isinstance(error, EverturnError) else error


def _failure(error: Exception) -> Failure:
    if isinstance(error, EverturnError):
        return Failure.from_error(error)
    return Failure("internal_error", f"Something went wrong: {type(error).__name__}: {error}")
