"""The endpoints of budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everturn.domain.sessions import NewSession
from everturn.store import Store
from everturn.testing.web_server import Running, run_web
from tests.auditing import audit_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


async def put(web: Running, **body: Any) -> list[dict[str, Any]]:
    answer = await web.http.put("/api/budgets", json=body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def test_a_budget_is_set_changed_read_and_removed(store: Store, data_dir: Path) -> None:
    async with run_web(store, data_dir) as web:
        assert (await web.http.get("/api/budgets")).json() == {"items": [], "timezone": "UTC"}
        [day] = await put(web, scope="day", amount=2.5, timezone="Europe/Vienna")
        assert (day["amount"], day["unit"], day["spent"], day["waiting"]) == (2.5, "usd", 0, 0)
        assert day["period_end"] - day["period_start"] in (23 * 3_600_000, 24 * 3_600_000, 25 * 3_600_000)
        [day] = await put(web, scope="day", amount=5)
        assert (day["amount"], day["timezone"]) == (5, "UTC")
        _, month = await put(web, scope="month", unit="tokens", amount=1_000_000)
        assert (month["amount"], month["unit"]) == (1_000_000, "tokens")
        [month] = await put(web, scope="day", amount=None)
        assert month["scope"] == "month"
        answer = await web.http.put("/api/budgets", json={"scope": "day", "amount": None})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert audit_of(data_dir) == [
        ("budget.set", "day: 2.50 USD"),
        ("budget.set", "day: 5.00 USD"),
        ("budget.set", "month: 1,000,000 tokens"),
        ("budget.removed", "day in USD"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"scope": "day", "amount": -1},
        {"scope": "day", "amount": 1e300},
        {"scope": "day", "amount": 1.5, "unit": "tokens"},
        {"scope": "day", "amount": 1, "timezone": "Mars/Olympus"},
        {"scope": "day", "amount": 1, "subject": "ses_x"},
        {"scope": "session", "amount": 1},
        {"scope": "year", "amount": 1},
        {"scope": "day"},
    ],
)
async def test_what_cannot_be_a_budget_is_refused(store: Store, data_dir: Path, body: Any) -> None:
    async with run_web(store, data_dir) as web:
        answer = await web.http.put("/api/budgets", json=body)
        assert answer.status_code == 422, answer.text
        assert (await web.http.get("/api/budgets")).json()["items"] == []


async def test_a_budget_of_another_owners_session_is_not_found(store: Store, data_dir: Path) -> None:
    foreign = await store.sessions.create("eve", NewSession())
    async with run_web(store, data_dir) as web:
        body = {"scope": "session", "subject": foreign.id, "amount": 1}
        assert (await web.http.put("/api/budgets", json=body)).status_code == 404
