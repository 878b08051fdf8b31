"""Values, state tables, errors and contracts. Imports nothing of ours; every room imports it.

Read ``turns`` (states), ``events`` (the journal's vocabulary), ``fold`` (journal to messages), then the
contracts: ``store`` (with ``store_values``), ``model``, ``tool``, ``memory`` (providers and the ledger),
``delivery_store`` (with ``delivery``: inbox and outbox).
"""

__all__ = [
    "asks",
    "blobs",
    "checkpoints",
    "clock",
    "delegates",
    "delivery",
    "delivery_store",
    "environ",
    "errors",
    "events",
    "fold",
    "ids",
    "job_states",
    "jobs",
    "json_types",
    "lazy",
    "media",
    "memory",
    "messages",
    "model",
    "platform",
    "preferences",
    "probe",
    "runtime",
    "sessions",
    "settings",
    "store",
    "store_values",
    "tool",
    "trees",
    "turns",
    "words",
    "working_copies",
]
