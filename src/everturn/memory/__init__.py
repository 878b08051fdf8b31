"""Memory: what is owed to providers, the commits that settle it, and the built-in provider.

Imports domain, store, models and tools. Start with ``memory.Memory``; ``notes`` holds the built-in one.
"""

from everturn.memory.building import BuiltMemory, build_memory
from everturn.memory.containing import ProviderFailed
from everturn.memory.memory import Committed, Drained, Memory, Outcome
from everturn.memory.providers import Providers
from everturn.memory.settings import NOTES, MemorySettings

__all__ = [
    "NOTES",
    "BuiltMemory",
    "Committed",
    "Drained",
    "Memory",
    "MemorySettings",
    "Outcome",
    "ProviderFailed",
    "Providers",
    "build_memory",
]
