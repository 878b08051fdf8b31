"""Values, state tables, errors and contracts. Imports nothing of ours; every room imports it.

Read ``turns`` (states), ``events`` (the journal's vocabulary), ``fold`` (journal to messages), then the
contracts: ``store``, ``model``, ``tool``, ``memory`` (of providers, and of the ledger).
"""

__all__ = [
    "asks",
    "clock",
    "environ",
    "errors",
    "events",
    "fold",
    "ids",
    "json_types",
    "media",
    "memory",
    "messages",
    "model",
    "preferences",
    "probe",
    "sessions",
    "settings",
    "store",
    "tool",
    "turns",
    "words",
]
