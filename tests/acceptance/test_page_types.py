"""The page's types come from the server's description; here is where a change of it is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.paging import open_house

KEPT = Path(__file__).parents[2] / "frontend/src/api/openapi.json"


def without_comments(schema: Any) -> Any:
    """Descriptions may be reworded without the page noticing. A field may be called ``description``, too."""
    if isinstance(schema, list):
        return [without_comments(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: value for key, value in schema.items() if not (key == "description" and isinstance(value, str))
    }
    return {key: without_comments(value) for key, value in kept.items()}


@pytest.mark.anyio
async def test_the_page_knows_the_server_as_it_is(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        now = (await house.api("GET", "openapi.json"))["components"]["schemas"]
    kept = json.loads(KEPT.read_text())["components"]["schemas"]
    changed = sorted(name for name, schema in kept.items() if without_comments(now.get(name)) != schema)
    assert not changed, f"run 'npm run types' in frontend/ against a running server: {changed}"
