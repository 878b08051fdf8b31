"""Memory as the server and the command line have it: the ledger, the built-in provider, the agent's tool."""

from __future__ import annotations

from pathlib import Path

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.ids import Ids
from everturn.domain.modelling import Models
from everturn.domain.probe import Probe
from everturn.domain.storing import Store
from everturn.memory.builtin import NotesProvider
from everturn.memory.memory import Memory
from everturn.memory.notebook import Notebooks
from everturn.memory.providers import Providers
from everturn.memory.settings import NOTES, MemorySettings
from everturn.memory.tool import MemoryTool


class BuiltMemory(msgspec.Struct, frozen=True):
    memory: Memory
    notebooks: Notebooks
    tool: MemoryTool


def build_memory(
    store: Store,
    models: Models,
    home: Path,
    *,
    clock: Clock,
    ids: Ids,
    settings: MemorySettings | None = None,
    probe: Probe | None = None,
) -> BuiltMemory:
    """Everything of memory over an open store; the notes lie in ``home``/memory. Starts nothing."""
    used = settings or MemorySettings()
    notebooks = Notebooks(home / "memory", ids)

    def open_notes() -> NotesProvider:
        return NotesProvider(notebooks, models, store.records, store.ledger, clock=clock, settings=used)

    memory = Memory(
        store.ledger, Providers({NOTES: open_notes}), clock=clock, ids=ids, settings=used, probe=probe
    )
    return BuiltMemory(memory, notebooks, MemoryTool(notebooks, store.ledger, clock))
