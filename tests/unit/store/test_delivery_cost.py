"""An idle account looks for work every second: each look reads an index of what is open, however much was sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everturn.store import sql
from everturn.store.sqlite.connection import prepare


@pytest.mark.parametrize(
    ("name", "index", "args"),
    [
        ("inbox_waiting", "inbox_waiting", ("main", 16)),
        ("replies_due", "outbox_owed", ("main", 20)),
        ("parts_claimable", "outbox_parts_waiting", ("main", 1, 16)),
        ("parts_aged", "outbox_parts_aging", ("main", 1)),
        ("parts_unknown", "outbox_parts_unknown", ("main",)),
    ],
)
def test_a_look_for_work_begins_with_an_index_of_what_is_open(
    tmp_path: Path, name: str, index: str, args: tuple[str | int, ...]
) -> None:
    connection = prepare(tmp_path / "everturn.db")
    try:
        text = re.sub(r"\$(\d+)", r"?\1", sql.queries("sqlite")[name])
        first, *_ = connection.execute(f"EXPLAIN QUERY PLAN {text}", args).fetchall()
    finally:
        connection.close()
    assert re.search(rf"SEARCH .* INDEX {index} \(account=\?", str(first[3]))
