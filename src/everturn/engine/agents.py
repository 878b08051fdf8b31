"""Builds what stays the same from turn to turn: system prompt, tool schemas, memory and history.

This is the only place that builds them. The result is cached per session key (``agent_cache``). A turn binds
it and gets a ``BoundAgent``.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from everturn.domain.memory import MemoryProvider, Recalled
from everturn.domain.messages import Message
from everturn.domain.model import Abilities, Model, ToolSchema
from everturn.domain.sessions import Session
from everturn.domain.store_values import Claim
from everturn.domain.tool import Instructions, Tool
from everturn.domain.turns import Completed, Turn, Usage
from everturn.engine.agent_cache import AgentCache, CacheEntry, VersionSpan
from everturn.engine.context import Prefix, Shown, estimate_tokens, show
from everturn.engine.services import TurnServices
from everturn.engine.turn_skills import with_skills
from everturn.memory import Memory

_INSTRUCTIONS = "Instructions of the user, for all conversations:"
_WEB = "agent:main:web"  # the session key of sessions without one


class WarmAgent(msgspec.Struct, frozen=True):
    """What is cached per session key. It holds nothing that belongs to one session."""

    system: str
    small: str
    schemas: tuple[ToolSchema, ...]
    handle: MemoryProvider | None = None
    recalled: str = ""  # the part of the system prompt that memory gave

    @property
    def tokens(self) -> int:
        return estimate_tokens(Prefix(self.system, self.schemas))


class TurnMaterial(msgspec.Struct, frozen=True):
    """What was gathered for one turn. ``recalled``: the text of memory for this session."""

    warm: WarmAgent
    tools: Mapping[str, Tool]
    recalled: str
    has_memory: bool = True


class BoundAgent:
    """A warm agent bound to one turn."""

    def __init__(
        self,
        cache: AgentCache[WarmAgent],
        entry: CacheEntry[WarmAgent],
        services: TurnServices,
        claim: Claim,
        material: TurnMaterial,
    ) -> None:
        self._cache = cache
        self._entry = entry
        self._services = services
        self._session = claim.session
        self._turn = claim.turn
        self._own = claim.message
        self._warm = material.warm
        self._recalled = material.recalled
        self._has_memory = material.has_memory
        self._given: Shown | None = entry.last_shown(claim.session.id)
        self.tools = material.tools

    @property
    def handle(self) -> MemoryProvider | None:
        return self._warm.handle

    @property
    def owed_to(self) -> tuple[str | None, str]:
        """The provider and the name of the handle that the turn will be owed to."""
        memory, handle = self._services.memory, self._warm.handle
        if memory is None or not self._has_memory:
            return None, ""
        return (memory.provider, "") if handle is None else (handle.name, memory.name_of(handle))

    def prefix(self, abilities: Abilities) -> Prefix:
        """The prefix for a model with these abilities: the same bytes each time."""
        if abilities.is_small:
            return Prefix(self._warm.small)
        system = self._warm.system
        if abilities.is_brief:
            system = self._services.settings.shorten(system)
        return Prefix(system, self._warm.schemas, self._recalled)

    async def history(self) -> list[Message]:
        """The messages before the turn, and its own first one."""
        session, turn = self._session, self._turn
        kept = await self._cache.history(
            self._entry,
            session.id,
            session.transcript_version,
            lambda: load_history(self._services, session, turn),
        )
        if not kept or kept[-1].turn_id == turn.id:  # guard: a04
            return list(kept)
        if self._own is None or kept[-1].turn_id != turn.parent_id:
            # The turn does not follow the end of the cached history.
            return await load_history(self._services, session, turn)
        return [*kept, self._own]

    def unseen(self, history: Sequence[Message], model: Model) -> Sequence[Message]:
        """The messages that may have files: without the beginning that was shown before and had none. Looking
        at all of 10,000 messages would delay the first token by milliseconds."""
        given = self._given
        if given is not None and given.begins(history, model.name, model.abilities):
            return history[given.count :]
        return history

    def show_history(self, history: Sequence[Message], model: Model, files: Mapping[str, bytes]) -> Shown:
        """The history before the turn in the form for this model. Reuses what the turn before prepared,
        which in a long session is nearly all of it."""
        self._given = show(
            history, model=model.name, abilities=model.abilities, files=files, before=self._given
        )
        return self._given

    def update_baseline(self, completed: Completed, history: Sequence[Message]) -> None:
        """Make the turn's end the new baseline of its session. Those of other sessions stay."""
        versions = VersionSpan(
            seen=self._session.transcript_version,
            before=completed.version_before,
            after=completed.version_after,
        )
        self._cache.refresh(self._entry, self._session.id, versions, history=history, given=self._given)

    def record_call(self, model: Model, usage: Usage) -> bool:
        """Record a model call; True if the provider should have had its prefix in its cache."""
        return self._cache.note_sent(
            self._entry,
            model.name,
            self._session.id,
            usage,
            0 if model.abilities.is_small else self._warm.tokens,
        )


def with_instructions(system: str, services: TurnServices) -> str:
    """The prompt with what its owner wants of every agent."""
    return f"{system}\n\n{_INSTRUCTIONS}\n{services.instructions}" if services.instructions else system


async def load_history(services: TurnServices, session: Session, turn: Turn) -> list[Message]:
    """The messages before the turn, and its own first one, as the store has them."""
    messages = await services.store.transcript.context(session.owner, session.id, upto=turn.id)
    # What an interrupted turn has said is also in its journal, and the turn continues from the journal.
    return [message for message in messages if message.turn_id != turn.id or message.ordinal == 0]


async def tools_of(services: TurnServices, session: Session, turn: Turn) -> Sequence[Tool]:
    """The tools that a turn may use: those of its profile and, of a delegate's, only what it was given."""
    only: Collection[str] | None = None
    if session.is_delegate:
        only = (await services.store.delegates.rights(session.id)).tools  # guard: e09
    return await services.toolbox.tools(session.owner, session.id, turn.profile or session.profile, only)


async def instructions_of(services: TurnServices, session: Session) -> Instructions:
    """The instructions for agents in the session's workspace (AGENTS.md). A delegate, which does not ask
    about them, follows what its parent follows, as long as its copy says the same."""
    workspace = await services.toolbox.workspace(session.owner, session.id, session.project)
    told = await services.toolbox.instructions(session.owner, workspace)
    if not told.is_there or told.is_trusted or session.parent_session is None:
        return told
    parent = await services.store.sessions.get(session.owner, session.parent_session)
    above = await instructions_of(services, parent)
    is_the_same = (
        above.is_trusted and above.digest == told.digest  # guard: e09
    )
    return above if is_the_same else told


class Agents:
    """Gives each turn its agent, warm where there is one."""

    def __init__(self, services: TurnServices, cache: AgentCache[WarmAgent]) -> None:
        self._services = services
        self._cache = cache

    @asynccontextmanager
    async def bind(self, claim: Claim, default_model: str) -> AsyncIterator[BoundAgent]:
        """The agent for this turn. It is not evicted inside the context."""
        session, turn = claim.session, claim.turn
        services = await self._services.for_owner(session.owner)
        profile = turn.profile or session.profile
        tools = await tools_of(services, session, turn)
        of_profile = services.settings.profile(profile)
        system = with_instructions(of_profile.system_prompt or services.settings.system_prompt, services)
        small = with_instructions(services.settings.small_prompt, services)
        told = await instructions_of(services, session)
        if told.is_trusted:
            system = f"{system}\n\nInstructions of this workspace (AGENTS.md):\n{told.text}"
        tools, system = await with_skills(services, session, profile, tools, system)
        # A delegate is told what it needs, and owes nothing.
        is_apart = session.private or session.is_delegate or not of_profile.memory
        memory = None if is_apart else services.memory
        is_new = self._cache.peek(key_of(session, profile)) is None
        known = await self._read_recalled(session, profile, memory)
        plain = WarmAgent(system, small, tuple(tool.spec.schema for tool in tools))
        model = turn.model or session.model or of_profile.model or default_model
        signature = _signature(plain, model, memory, known.forgotten)
        async with self._cache.bind(
            key_of(session, profile), signature, lambda: self._build(plain, session, memory)
        ) as entry:
            warm = entry.agent or plain
            recalled = await self._recall(session, turn, memory, warm, known, is_new)
            by_name = {tool.spec.name: tool for tool in tools}
            material = TurnMaterial(warm, by_name, recalled, memory is not None)
            yield BoundAgent(self._cache, entry, services, claim, material)

    async def _read_recalled(self, session: Session, profile: str | None, memory: Memory | None) -> Recalled:
        """What was recalled for the session before. If the user has deleted something of what a warm agent
        says, that is dropped here, so that the agent is rebuilt."""
        if memory is None:
            return Recalled()
        known = await memory.ledger.get_recalled(session.owner, session.id)
        entry = self._cache.peek(key_of(session, profile))
        warm = entry.agent if entry is not None else None
        if warm is None or warm.handle is None:
            return known
        return await self._drop_deleted(session, memory, warm.handle, warm.recalled, known)

    async def _drop_deleted(
        self, session: Session, memory: Memory, handle: MemoryProvider, recalled: str, known: Recalled
    ) -> Recalled:
        """What is known, if the user has deleted nothing of it; else what is left after dropping it."""
        if await memory.holds(handle, session.owner, "\n".join(filter(None, (recalled, known.text)))):
            return known
        await memory.ledger.drop_recalled(session.owner)
        return await memory.ledger.get_recalled(session.owner, session.id)

    async def history(self, session: Session, turn: Turn) -> list[Message]:
        return await load_history(self._services, session, turn)

    async def _build(
        self, plain: WarmAgent, session: Session, memory: Memory | None
    ) -> tuple[WarmAgent, int]:
        warm = plain
        if memory is not None and memory.provider is not None:
            handle = await memory.open()
            try:
                known = await memory.recall(handle, session.owner, session.key, "")
            except BaseException:
                # The turn was cancelled. The handle is not used any more, and may have a thread of its own.
                self._cache.discard(msgspec.structs.replace(plain, handle=handle))
                raise
            system = f"{plain.system}\n\n{known}" if known else plain.system
            warm = msgspec.structs.replace(plain, system=system, handle=handle, recalled=known)
        return warm, len(warm.system) + len(warm.small) + len(msgspec.json.encode(warm.schemas))

    async def _recall(
        self,
        session: Session,
        turn: Turn,
        memory: Memory | None,
        warm: WarmAgent,
        known: Recalled,
        is_new: bool,
    ) -> str:
        """What memory has for the session's first prompt, frozen from then on. ``is_new``: the agent was
        cold, so what was recalled before has not been checked against later deletions yet."""
        if memory is None or warm.handle is None:
            return ""
        if known.text is not None and is_new:
            known = await self._drop_deleted(session, memory, warm.handle, "", known)
        if known.text is not None:
            return known.text
        return await memory.recall_frozen(warm.handle, session.owner, session.id, session.key, turn.text)


def key_of(session: Session, profile: str | None) -> str:
    """The cache key. Owners never share an agent, and private sessions share none with others."""
    place = session.key or f"{_WEB}:{profile or 'default'}:{session.model or ''}"
    # The owner's length comes first, so that no owner and key can read as another owner's.
    of = f"{'private' if session.private else ''}{' delegate' if session.is_delegate else ''}"
    return f"{len(session.owner)} {session.owner}\n{place}\n{of}"


def _signature(plain: WarmAgent, model: str, memory: Memory | None, forgotten: int) -> str:
    """A digest of everything that changes the prefix, and of nothing that does not."""
    policy = None
    if memory is not None:
        settings = memory.settings
        policy = (settings.provider, settings.profile_facts_max, settings.recall_chars_max, forgotten)
    facts = (plain.system, plain.small, plain.schemas, model, policy)
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


def is_tainted(messages: Iterable[Message]) -> bool:
    """True if text from outside may be in the context."""
    return any(message.brings_outside_text for message in messages)
