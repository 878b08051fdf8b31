"""Accepts, runs, cancels and resumes turns; compaction, titles, limits.

Imports domain, store, models, tools and memory through their contracts; used by gateway, web and cli.
``engine`` is the front door; read ``loop`` and ``resume`` for how a turn goes.
"""

from everturn.engine.engine import Engine
from everturn.engine.preferences import Preferences, read_preferences, write_preferences
from everturn.engine.settings import EngineSettings, TurnProfile

__all__ = ["Engine", "EngineSettings", "Preferences", "TurnProfile", "read_preferences", "write_preferences"]
