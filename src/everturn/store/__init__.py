"""The store: sessions, turns, journal and transcript, in SQLite or PostgreSQL.

Owns everything that survives a crash. Imports ``domain`` only; ``memory``, ``engine``, ``web`` and
``cli`` call it through the protocols of ``domain.store``. Transactions are scripts (``scripts/script.py``),
written once; ``sqlite/`` and ``postgres/`` run them. Read ``turns/`` and ``journal/`` first;
docs/architecture.md has a map of the folders.
"""

from everturn.store.files.copy_tree import copy_tree
from everturn.store.open import has_store, open_store, restore_database
from everturn.store.store import Store, StoreSettings

__all__ = ["Store", "StoreSettings", "copy_tree", "has_store", "open_store", "restore_database"]
