"""A message that tries a profile before it is saved, in a session that is not kept.

The profile is a record under a name of its own until the trial ends, so that every worker has it and a
resumed turn goes on with it. The session is private and ephemeral: no list shows it, memory never sees it,
and a crash leaves nothing behind for longer than an hour.
"""

from __future__ import annotations

from typing import Final

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import NotFound
from everturn.domain.ids import Ids
from everturn.domain.sessions import Session
from everturn.domain.store import Store
from everturn.domain.store_values import Accepted, ImportedSession, Submission
from everturn.engine import Engine
from everturn.tools import EverturnToolbox, Profile
from everturn.tools.profile_book import TRIAL
from everturn.web.deletion import Deletions

_LASTS_MS: Final = 3_600_000


class ProfileTrials:
    def __init__(
        self, engine: Engine, store: Store, toolbox: EverturnToolbox, deletions: Deletions, clock: Clock
    ) -> None:
        self._engine = engine
        self._store = store
        self._toolbox = toolbox
        self._deletions = deletions
        self._clock = clock
        self._ids = Ids(clock)

    async def begin(self, owner: str, profile: Profile, knowledge: tuple[str, ...], text: str) -> Accepted:
        """Send one message with this profile. ``knowledge``: the ids of what it may search. Raises Invalid,
        and what ``Engine.submit`` raises."""
        await self._sweep(owner)
        due_at = self._clock.now_ms() + _LASTS_MS
        # Servers name the profiles that use them: the trial has those of the profile that it is about.
        servers = await self._toolbox.mcp.of_profile(profile)
        name = f"{TRIAL}{self._ids.make('prf')}"
        tried = msgspec.structs.replace(profile, name=name, mcp=tuple(server.name for server in servers))
        await self._toolbox.profile_book.begin_trial(tried, due_at)
        await self._use_knowledge(owner, name, knowledge)
        now = self._clock.now_ms()
        # With a title, so that no model is asked for one.
        session = Session(self._ids.session(), owner, 1, 0, now, now, "Trial", private=True, profile=name)
        made = await self._store.transcript.import_session(
            owner, ImportedSession(session, (), (), purge_at=due_at)
        )
        self._deletions.schedule_purge(owner, made.id, due_at)
        return await self._engine.submit(owner, made.id, Submission(text=text))

    async def end(self, owner: str, session_id: str) -> None:
        """Delete a trial with all that came of it. Raises NotFound for any other session."""
        session = await self._store.sessions.get(owner, session_id)
        if session.profile is None or not session.profile.startswith(TRIAL):
            raise NotFound("trial", session_id)
        await self._engine.delete(owner, session_id)
        self._deletions.forget(session_id)
        await self._forget(owner, session.profile)

    async def _sweep(self, owner: str) -> None:
        """Forget the profiles of trials that were never ended. Their sessions are purged by then."""
        for name in await self._toolbox.profile_book.overdue_trials(self._clock.now_ms()):
            await self._forget(owner, name)

    async def _forget(self, owner: str, name: str) -> None:
        await self._use_knowledge(owner, name, ())
        await self._toolbox.profile_book.end_trial(name)

    async def _use_knowledge(self, owner: str, name: str, wanted: tuple[str, ...]) -> None:
        if self._toolbox.knowledge is not None:
            await self._toolbox.knowledge.book.use_in(owner, name, wanted)
