"""Accepts, runs, cancels and resumes turns; compaction, titles, limits.

Uses store, models and tools through the contracts in ``domain``; used by web, cli and the embedded API.
``engine`` is the public interface. Read ``loop`` and ``resume`` to see how a turn runs.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.engine.delegates import Delegates
    from everturn.engine.engine import Engine
    from everturn.engine.preferences import Preferences, read_preferences, write_preferences
    from everturn.engine.services import EngineParts
    from everturn.engine.settings import DelegateSettings, EngineSettings, TurnProfile
    from everturn.engine.turn_hooks import FailedHook, read_failed_hooks

__all__ = [
    "DelegateSettings",
    "Delegates",
    "Engine",
    "EngineParts",
    "EngineSettings",
    "FailedHook",
    "Preferences",
    "TurnProfile",
    "read_failed_hooks",
    "read_preferences",
    "write_preferences",
]

__getattr__ = lazy_names(__name__)
