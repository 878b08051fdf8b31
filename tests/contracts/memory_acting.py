"""Short words for the suites about memory: a memory over the test's store, and turns that it is owed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.probe import Probe
from everturn.domain.runtime import Runtime
from everturn.memory import Memory, MemorySettings, Providers
from everturn.store import Store
from everturn.testing import acting
from everturn.testing.acting import ME
from everturn.testing.memory import RecordingProvider

NAME = "recorder"


def memory_over(
    store: Store,
    clock: Clock,
    probe: Probe | None = None,
    *,
    opened: Sequence[RecordingProvider] = (),
    worker: str = "",
    **settings: Any,
) -> Memory:
    """A memory whose provider is the recorder; ``opened`` are the handles it opens, one after the other."""
    left = list(opened)
    given = MemorySettings(provider=NAME, **settings)
    providers = Providers({NAME: lambda: left.pop(0)}, {})
    return Memory(
        store.ledger, providers, Runtime(clock, Ids(clock), probe or Probe()), settings=given, worker=worker
    )


async def said(
    store: Store, memory: Memory, session_id: str, text: str, handle: RecordingProvider | None = None
) -> str:
    """A completed turn that is owed to the session's handle, as the engine completes it."""
    held = await acting.start(store, session_id, text)
    number = await acting.append(store, held, acting.answer(f"re: {text}"))
    seen_by = handle or memory.current(session_id)
    await acting.complete(store, held, number, provider=NAME, handle=memory.name_of(seen_by))
    return held.turn.id


async def owes(memory: Memory, session_id: str) -> bool:
    return await memory.has_uncommitted_work(ME, session_id)
