"""The store: sessions, turns, journal and transcript, in SQLite or PostgreSQL.

Owns everything that survives a crash. Imports ``domain`` only; ``memory``, ``engine``, ``web`` and
``cli`` call it through the protocols of ``domain.store``. Transactions are scripts (``scripts/script.py``),
written once; ``sqlite/`` and ``postgres/`` run them. Read ``turns/`` and ``journal/`` first;
docs/architecture.md has a map of the folders.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.store.blobs.address import StorageKeys, parse_address
    from everturn.store.blobs.object_storage import ObjectStorage
    from everturn.store.files.backup_contents import BackupContents, BackupRecord, count_rows, read_contents
    from everturn.store.files.copy_tree import copy_tree
    from everturn.store.open import (
        check_backup,
        has_store,
        is_postgres,
        open_store,
        restore_database,
        trial_database,
    )
    from everturn.store.secrets.file import SecretsFile
    from everturn.store.secrets.key_ring import KeyRing, read_key_ring
    from everturn.store.secrets.secrets import open_secrets
    from everturn.store.secrets.storage_keys import find_storage_keys
    from everturn.store.secrets.table import SecretsTable
    from everturn.store.settings import StoreSettings
    from everturn.store.store import Store

__all__ = [
    "BackupContents",
    "BackupRecord",
    "KeyRing",
    "ObjectStorage",
    "SecretsFile",
    "SecretsTable",
    "StorageKeys",
    "Store",
    "StoreSettings",
    "check_backup",
    "copy_tree",
    "count_rows",
    "find_storage_keys",
    "has_store",
    "is_postgres",
    "open_secrets",
    "open_store",
    "parse_address",
    "read_contents",
    "read_key_ring",
    "restore_database",
    "trial_database",
]

__getattr__ = lazy_names(__name__)
