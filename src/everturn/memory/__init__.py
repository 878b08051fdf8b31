"""Memory: what is owed to providers, the commits that settle it, and the built-in provider.

Imports domain, store, models and tools. Start with ``memory.Memory``; ``builtin`` is the
provider that keeps notes.
"""

from everturn.memory.assembly import BuiltMemory, build_memory
from everturn.memory.commits import CommitOutcome, CommitResult
from everturn.memory.memory import DrainResult, Memory
from everturn.memory.providers import Providers
from everturn.memory.settings import NOTES, MemorySettings
from everturn.memory.threaded_provider import ProviderFailed

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
]
