"""Imports conversations of other systems: reads their exports, and stores each as a session, whole or not
at all.

May import domain and store. The command line and the HTTP API call ``import_history``.
"""

from everturn.importers.history import Imported, ImportOutcome, import_history
from everturn.importers.sources import SOURCES, open_history, recognize

__all__ = ["SOURCES", "ImportOutcome", "Imported", "import_history", "open_history", "recognize"]
