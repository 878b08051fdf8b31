"""Builds memory for the server and the command line: the ledger, the built-in provider, the agent's tool."""

from __future__ import annotations

from pathlib import Path

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.ids import Ids
from everturn.domain.model import Models
from everturn.domain.runtime import Runtime
from everturn.domain.store import Store
from everturn.memory.builtin import NotesProvider
from everturn.memory.folder_import import import_folder
from everturn.memory.memory import Memory
from everturn.memory.notebook import FileNotebooks, Notebooks, StoredNotebooks
from everturn.memory.providers import Providers
from everturn.memory.settings import NOTES, MemorySettings
from everturn.memory.tool import MemoryTool

_FOLDER = "memory"


class BuiltMemory(msgspec.Struct, frozen=True):
    memory: Memory
    notebooks: Notebooks
    tool: MemoryTool


def build_memory(
    store: Store,
    models: Models,
    home: Path,
    runtime: Runtime,
    *,
    settings: MemorySettings | None = None,
) -> BuiltMemory:
    """Build memory on an open store; with SQLite the notes are files in ``home``/memory. Starts no task.

    Raises Invalid if the provider is not installed, so that the start fails and not every turn.
    """
    used = settings or MemorySettings()
    clock = runtime.clock
    notebooks = _notebooks(store, home, runtime.ids)

    def open_notes() -> NotesProvider:
        return NotesProvider(notebooks, models, store.records, store.ledger, clock=clock, settings=used)

    providers = Providers({NOTES: open_notes})
    if used.provider and used.provider not in providers.names:
        raise Invalid(
            f"config.toml: memory.provider: there is no memory provider {used.provider!r}.",
            hint=f"Possible: {', '.join(providers.names)}; or install the plug-in.",
            key="memory.provider",
        )
    memory = Memory(store.ledger, providers, runtime, settings=used)
    return BuiltMemory(memory, notebooks, MemoryTool(notebooks, store.ledger, clock))


async def import_notes(built: BuiltMemory, home: Path, ids: Ids) -> None:
    """With PostgreSQL, bring the notes of this data folder into the store, once, before they are used."""
    if isinstance(built.notebooks, StoredNotebooks):
        await import_folder(built.notebooks, home / _FOLDER, ids)


def _notebooks(store: Store, home: Path, ids: Ids) -> Notebooks:
    rows = store.notes
    return FileNotebooks(home / _FOLDER, ids) if rows is None else StoredNotebooks(rows, ids)
