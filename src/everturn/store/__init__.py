"""The durable truth: sessions, turns, journal, transcript, in SQLite or PostgreSQL.

Owns everything that survives a crash. Imports ``domain`` only; ``memory``, ``engine``, ``web``, ``gateway``
and ``cli`` call it through the nouns of ``domain.storing``. Transactions are scripts (``script.py``), written
once in the noun modules; ``sqlite/`` and ``postgres/`` run them.
"""

from everturn.store.files.copy_tree import copy_tree
from everturn.store.open import has_store, open_store, restore_database
from everturn.store.store import Store, StoreSettings

__all__ = ["Store", "StoreSettings", "copy_tree", "has_store", "open_store", "restore_database"]
