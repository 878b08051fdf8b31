"""Values, state tables, errors and contracts. Imports nothing of ours; every room imports it.

Read ``turns`` (states), ``events`` (the journal's vocabulary), ``fold`` (journal to messages), then the
contracts: ``store``, ``model``, ``tool``, ``memory`` (of providers, and of the ledger).
"""

__all__ = [
    "asks",
    "clock",
    "errors",
    "events",
    "fold",
    "ids",
    "media",
    "memory",
    "messages",
    "model",
    "probe",
    "sessions",
    "store",
    "tool",
    "turns",
    "words",
]
