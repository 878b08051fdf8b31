"""Copies a whole store between SQLite and PostgreSQL, and verifies the copy before it is put in use.

May import domain, store and memory. The command line calls ``move_store``.
"""

from everturn.move.move import MoveResult, move_store

__all__ = ["MoveResult", "move_store"]
