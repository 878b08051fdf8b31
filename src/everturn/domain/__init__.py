"""Values, state tables, errors and contracts. Imports nothing of ours; every room imports it.

Read ``turns`` (states), ``events`` (the journal's vocabulary), ``fold`` (journal to messages), then the
contracts: ``storing``, ``modelling``, ``tooling``, ``remembering``.
"""

__all__ = [
    "clock",
    "errors",
    "events",
    "fold",
    "ids",
    "messages",
    "modelling",
    "probe",
    "remembering",
    "sessions",
    "storing",
    "tooling",
    "turns",
]
