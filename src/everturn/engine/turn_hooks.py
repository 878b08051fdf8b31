"""Hooks after a turn: owed by a record before the turn completes, called afterwards, at least once each.

The record is written before the turn's end, because afterwards a crash would leave nothing that says that
hooks are owed. A record whose turn did not complete is dropped. One process at a time calls them: it holds a
lease, as for backups, so that two workers do not call one hook about one turn side by side.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError, Gone, LeaseLost, NotFound, Retry
from everturn.domain.hooks import CalledTool, TurnHooks, TurnSummary
from everturn.domain.json_types import Json
from everturn.domain.messages import Message, Result, Role
from everturn.domain.store import Records, Store
from everturn.domain.turns import ENDED, Turn, TurnKind, TurnState

OWED: Final = "after_turn"  # kinds of records
FAILED: Final = "failed_hook"
SYSTEM: Final = "system"  # the owner of records that belong to the server itself
LEASE: Final = "~hooks"  # among the accounts' leases; no account can have this name
LOOK_S: Final = 15.0  # what another worker left is found after this time
WORDS_CHARS_MAX: Final = 200_000  # of the text and the answer in a summary
_log = logging.getLogger("everturn.engine")


class OwedHooks(msgspec.Struct, frozen=True):
    """What is owed about one turn. ``called``: those that have returned. ``began``: the one that was being
    called, which may have been cut off."""

    owner: str
    session_id: str
    turn_id: str
    hooks: tuple[str, ...]
    called: tuple[str, ...] = ()
    began: str = ""


class FailedHook(msgspec.Struct, frozen=True):
    """The last failure of a hook; dropped when the hook has succeeded again."""

    name: str
    turn_id: str
    problem: str
    failed_at: int


async def read_failed_hooks(records: Records) -> dict[str, FailedHook]:
    """The hooks whose last call failed, by name."""
    found = await records.list(SYSTEM, FAILED)
    return {name: msgspec.convert(value, FailedHook) for name, value in found.items()}


class AfterTurnHooks:
    """Owes and calls hooks. ``hooks`` None: there are none."""

    def __init__(self, hooks: TurnHooks | None, store: Store, clock: Clock, worker: str) -> None:
        self._hooks = hooks
        self._store = store
        self._clock = clock
        self._worker = worker
        self._nudged = anyio.Event()

    async def owe(self, turn: Turn) -> None:
        """Record that the hooks of now are owed, should this turn complete. Twice is harmless."""
        names = [] if self._hooks is None or turn.kind is not TurnKind.MESSAGE else await self._hooks.names()
        if names:
            owed = OwedHooks(turn.owner, turn.session_id, turn.id, tuple(names))
            await self._put(owed)

    def nudge(self) -> None:
        self._nudged.set()

    async def run(self) -> None:
        """Call what is owed: at once after a nudge, and what a dead worker left after a while."""
        while self._hooks is not None:
            self._nudged = anyio.Event()
            try:
                await self.call_due(self._hooks)
            except EverturnError as error:
                _log.warning("hooks wait: %s", error.message)
            except Exception:
                # The root of its task: the records are still there, and the next look finds them.
                _log.exception("hooks wait")
            async with anyio.create_task_group() as group:
                group.start_soon(self._nudge_later, name="next look for hooks")
                await self._nudged.wait()
                group.cancel_scope.cancel()

    async def _nudge_later(self) -> None:
        await self._clock.sleep(LOOK_S)
        self._nudged.set()

    async def call_due(self, hooks: TurnHooks) -> None:
        """Call what is owed now, unless another worker is at it."""
        names = await hooks.names()
        if not names or not await self._due():
            return
        leases = self._store.delivery.leases
        lease = await leases.take(LEASE, self._worker)
        if lease is None:
            return  # another worker calls them
        try:
            for owed in await self._due():
                await self._call(hooks, owed)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await leases.release(lease)
                except (LeaseLost, Retry) as error:
                    _log.info("the lease of hooks was not released: %s", error)

    async def _due(self) -> list[OwedHooks]:
        """What is owed about completed turns, the oldest first; drops what cannot become due any more."""
        found: list[tuple[int, OwedHooks]] = []
        async for values in self._store.records.of_kind(OWED):
            for value in values:
                owed = msgspec.convert(value, OwedHooks)
                turn = await self._turn(owed)
                if turn is None or turn.state in ENDED - {TurnState.COMPLETED, TurnState.INTERRUPTED}:
                    await self._store.records.delete(owed.owner, OWED, owed.turn_id)
                elif turn.state is TurnState.COMPLETED:
                    found.append((turn.ended_at or 0, owed))
        return [owed for _, owed in sorted(found, key=lambda one: one[0])]

    async def _turn(self, owed: OwedHooks) -> Turn | None:
        try:
            return await self._store.turns.get(owed.owner, owed.turn_id)
        except (NotFound, Gone):
            return None

    async def _call(self, hooks: TurnHooks, owed: OwedHooks) -> None:
        present = await hooks.names()
        for name in owed.hooks:
            if name in owed.called or name not in present:
                continue
            try:
                summary = await self._summarise(owed, name)
            except (NotFound, Gone):
                break  # its session was deleted meanwhile
            # Durable before the call, so that a call after a crash can say that it may be the second.
            owed = msgspec.structs.replace(owed, began=name)
            await self._put(owed)
            await self._note(name, owed, await hooks.run(name, summary))
            owed = msgspec.structs.replace(owed, called=(*owed.called, name), began="")
            await self._put(owed)
        await self._store.records.delete(owed.owner, OWED, owed.turn_id)

    async def _note(self, name: str, owed: OwedHooks, problem: str) -> None:
        records = self._store.records
        if problem:
            _log.error("hook %s failed after turn %s: %s", name, owed.turn_id, problem)
            failed = FailedHook(name, owed.turn_id, problem, self._clock.now_ms())
            await records.put(SYSTEM, FAILED, name, msgspec.to_builtins(failed))
        elif await records.get(SYSTEM, FAILED, name) is not None:
            await records.delete(SYSTEM, FAILED, name)

    async def _summarise(self, owed: OwedHooks, name: str) -> TurnSummary:
        turn = await self._store.turns.get(owed.owner, owed.turn_id)
        session = await self._store.sessions.get(owed.owner, owed.session_id)
        path = await self._store.transcript.context(owed.owner, owed.session_id, upto=owed.turn_id)
        messages = [message for message in path if message.turn_id == owed.turn_id]
        answers = [message for message in messages if message.role is Role.ASSISTANT]
        return TurnSummary(
            key=f"{owed.turn_id}/{name}",
            turn_id=owed.turn_id,
            session_id=owed.session_id,
            owner=owed.owner,
            title=session.title,
            text=turn.text[:WORDS_CHARS_MAX],
            answer=answers[-1].text[:WORDS_CHARS_MAX] if answers else "",
            calls=_calls(messages),
            profile=turn.profile or session.profile,
            model=answers[-1].model if answers else turn.model or "",
            usage=turn.usage,
            created_at=turn.created_at,
            ended_at=turn.ended_at or 0,
            is_private=session.private,
            is_repeat=owed.began == name,
        )

    async def _put(self, owed: OwedHooks) -> None:
        value: Json = msgspec.to_builtins(owed)
        await self._store.records.put(owed.owner, OWED, owed.turn_id, value)


def _calls(messages: Sequence[Message]) -> tuple[CalledTool, ...]:
    results = (part for message in messages for part in message.parts if isinstance(part, Result))
    return tuple(CalledTool(result.name, result.outcome) for result in results)
