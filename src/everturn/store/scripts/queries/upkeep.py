"""Queries of the check and the repair of a store, and of its figures."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue


class OrphanCount(Columns, frozen=True):
    what: str
    count: int


class Totals(Columns, frozen=True):
    sessions: int
    turns: int
    messages: int
    asks: int
    resumed: int


class UsageColumns(Columns, frozen=True):
    """``purpose``: ``turn``, or what was paid for besides turns."""

    model: str | None
    usage: str  # JSON
    at: int
    purpose: str


LISTS_DIFFER: SelectValue[[], str] = SelectValue("lists_differ")
TAILS_BEHIND: SelectValue[[], str] = SelectValue("tails_behind")
ORPHANS: Select[[], OrphanCount] = Select("orphans", OrphanCount)
TOTALS: Select[[], Totals] = Select("totals", Totals)
USAGE_ROWS: Select[[str, int], UsageColumns] = Select("usage_rows", UsageColumns)
