"""Which programs may write to a database: its schema, and the oldest schema that a program must know."""

from __future__ import annotations

from everturn.domain.errors import StoreTooNew


def refuse_newer(name: str, schema: int, schema_min: int, known: int) -> None:
    """Raise StoreTooNew unless a program that knows the schemas up to ``known`` may write to ``name``."""
    if known < schema_min:  # guard: g04
        raise too_new(name, str(schema), str(schema_min), known)


def too_new(name: str, schema: str, schema_min: str, known: int) -> StoreTooNew:
    return StoreTooNew(
        f"{name} has schema {schema}, which only a version of Everturn that knows schema {schema_min} may "
        f"write; this version knows schemas up to {known}. Nothing was written and nothing is lost.",
        hint="Upgrade Everturn here, or open another data folder. To go back to this version, restore a "
        "backup that it made.",
    )
