"""Carries a whole store between SQLite and PostgreSQL, and verifies it before anything names it.

May import domain, store and memory. The command line calls ``move_store``.
"""

from everturn.move.move import Moved, move_store

__all__ = ["Moved", "move_store"]
