"""The small parts: throttle, news, metrics, the audit file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everturn.domain.sessions import Session
from everturn.domain.turns import TurnState
from everturn.testing import FakeClock
from everturn.web.access.audit import Audit
from everturn.web.access.errors import Throttled
from everturn.web.access.throttle import Throttle
from everturn.web.metrics import Metrics
from everturn.web.streams.news import Newsroom

pytestmark = pytest.mark.anyio


# --- throttle ----------------------------------------------------------------------------------------


def test_many_addresses_together_are_slowed_too(clock: FakeClock) -> None:
    throttle = Throttle(clock)
    throttle.begin("10.7.7.7")
    throttle.note_success("10.7.7.7")
    for number in range(50):
        throttle.begin(f"10.0.0.{number}")
    with pytest.raises(Throttled):
        throttle.begin("10.9.9.9")
    throttle.begin("10.7.7.7")  # an address that has signed in before is not locked out by others


def test_an_attempt_counts_before_it_is_checked_and_an_unchecked_one_is_taken_back(clock: FakeClock) -> None:
    throttle = Throttle(clock)
    for _ in range(10):
        throttle.begin("a")
        throttle.take_back("a")
    for _ in range(5):
        throttle.begin("a")
    with pytest.raises(Throttled):
        throttle.begin("a")


def test_the_addresses_of_one_ipv6_network_are_one_place(clock: FakeClock) -> None:
    throttle = Throttle(clock)
    for number in range(5):
        throttle.begin(f"2001:db8::{number}")
    with pytest.raises(Throttled):
        throttle.begin("2001:db8::ffff:1")
    throttle.begin("2001:db8:0:1::1")
    for _ in range(4):
        throttle.begin("::ffff:10.0.0.1")
    throttle.begin("::ffff:10.0.0.2")


def test_the_wait_doubles_up_to_a_quarter_of_an_hour_and_is_forgotten(clock: FakeClock) -> None:
    throttle = Throttle(clock)
    waits = []
    for _ in range(20):
        try:
            throttle.begin("a")
        except Throttled as refused:
            waits.append(refused.facts["retry_after_s"])
            clock.stand_still(refused.facts["retry_after_s"])
            throttle.begin("a")
    assert waits[:4] == [2, 4, 8, 16]
    assert max(waits) == 900
    clock.stand_still(3601)
    throttle.begin("a")
    throttle.begin("a")


# --- news --------------------------------------------------------------------------------------------


def session(**more: Any) -> Session:
    base = {"id": "ses_1", "owner": "o", "version": 1, "position": 0, "created_at": 50, "updated_at": 50}
    return Session(**{**base, **more})


def kinds(*rows: Session | None, known: bool = True) -> list[str | None]:
    room = Newsroom(started_at=100)
    if known:
        room.remember((session(),))
    return [news and news.kind for news in (room.about("ses_1", row) for row in rows)]  # type: ignore[misc]  # None stays None


def test_each_change_has_its_word() -> None:
    busy = session(active_turn="trn_1", active_state=TurnState.RUNNING)
    waiting = session(active_turn="trn_1", active_state=TurnState.WAITING)
    assert kinds(busy, waiting, session(is_unread=True)) == ["session.busy", "session.busy", "session.done"]
    assert kinds(session(title="x")) == ["session.renamed"]
    assert kinds(session(is_unread=True)) == ["session.unread"]
    assert kinds(session(pinned=True)) == ["session.changed"]
    assert kinds(None, None) == ["session.deleted", None]


def test_progress_alone_is_no_news() -> None:
    assert kinds(session(position=9, updated_at=99)) == [None]


def test_a_row_that_is_new_is_created_only_if_it_is_young() -> None:
    assert kinds(session(created_at=200), known=False) == ["session.created"]
    assert kinds(session(), known=False) == ["session.changed"]


# --- metrics -----------------------------------------------------------------------------------------


def test_metrics_are_prometheus_text() -> None:
    metrics = Metrics()
    metrics.count("GET", "/api/sessions", 200, 0.004)
    metrics.count("GET", "/api/sessions", 200, 30.0)
    metrics.count("GET", "/api/events", 200, None)
    text = metrics.text({"streams": {"open": 3}, "store": {"states": {"running": 2, "failed": 1}, "x": "no"}})
    lines = text.splitlines()
    assert 'everturn_http_requests_total{method="GET",route="/api/sessions",status="200"} 2' in lines
    assert 'everturn_http_seconds_bucket{le="0.005"} 1' in lines
    assert 'everturn_http_seconds_bucket{le="+Inf"} 2' in lines
    assert "everturn_streams_open 3" in lines
    assert 'everturn_store_states{state="running"} 2' in lines
    assert not any("_x " in line for line in lines)


# --- the audit file ----------------------------------------------------------------------------------


async def test_a_torn_line_swallows_no_later_entry(tmp_path: Path, clock: FakeClock) -> None:
    audit = Audit(tmp_path, clock)
    await audit.write("signin", "ada")
    path = tmp_path / "audit.jsonl"
    path.write_bytes(path.read_bytes() + b'{"at":1,"wh')
    await audit.write("signout", "ada")
    assert [entry.what for entry in await audit.newest(10)] == ["signout", "signin"]


async def test_a_full_audit_file_makes_room_for_a_new_one(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everturn.web.access.audit._BYTES_MAX", 100)
    audit = Audit(tmp_path, clock)
    for number in range(5):
        await audit.write("signin", f"ada {number}")
    assert (tmp_path / "audit.1.jsonl").exists()
    assert (await audit.newest(1))[0].by == "ada 4"
    assert [entry.by for entry in await audit.newest(2)] == ["ada 4", "ada 3"], "also of the file before"
