"""The numbers in the upgrade guide are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from everturn.store import open_store
from everturn.store.sqlite.connection import SCHEMA

GUIDE = Path(__file__).parents[3] / "docs" / "upgrading.md"


@pytest.mark.anyio
async def test_the_guide_names_the_current_schema(tmp_path: Path) -> None:
    async with open_store(data_dir=tmp_path):
        pass
    database = apsw.Connection(str(tmp_path / "everturn.db"))
    ((lowest,),) = database.execute("SELECT value FROM meta WHERE name = 'schema_min'").fetchall()
    database.close()
    named = re.search(
        r"The current schema is (\d+), `schema_min` is (\d+)\.", GUIDE.read_text(encoding="utf-8")
    )
    assert named is not None
    assert named.groups() == (str(SCHEMA), str(lowest))
