"""The embedded store: one writer thread with natural group commit, separate readers."""

from everturn.store.sqlite.database import SqliteDatabase

__all__ = ["SqliteDatabase"]
