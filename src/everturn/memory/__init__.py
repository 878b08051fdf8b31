"""Memory: which turns are owed to a provider, the commits that deliver them, and the built-in provider.

Imports domain, store, models and tools. Called by engine, web and cli. Start with ``memory.Memory``;
``builtin`` is the provider that keeps notes.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.memory.assembly import BuiltMemory, build_memory, import_notes
    from everturn.memory.commits import CommitOutcome, CommitResult
    from everturn.memory.memory import DrainResult, Memory
    from everturn.memory.provider_monitor import ProviderFailed
    from everturn.memory.providers import Providers
    from everturn.memory.settings import NOTES, MemorySettings

__all__ = [
    "NOTES",
    "BuiltMemory",
    "CommitOutcome",
    "CommitResult",
    "DrainResult",
    "Memory",
    "MemorySettings",
    "ProviderFailed",
    "Providers",
    "build_memory",
    "import_notes",
]

__getattr__ = lazy_names(__name__)
