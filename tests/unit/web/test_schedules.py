"""The endpoints of schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everturn.store import Store
from everturn.testing.acting import new_session
from everturn.testing.web_server import Running, run_web
from tests.auditing import audit_of

pytestmark = pytest.mark.anyio
CRON = {"kind": "cron", "expression": "0 8 * * 1-5"}
NEW = {"name": "Morning", "text": "Summarise my inbox.", "rule": CRON, "timezone": "Europe/Vienna"}


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


async def make(web: Running, **more: Any) -> dict[str, Any]:
    answer = await web.http.post("/api/schedules", json=NEW | more)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_schedule_is_made_read_changed_paused_and_deleted(store: Store, data_dir: Path) -> None:
    async with run_web(store, data_dir) as web:
        made = await make(web)
        assert made["words"] == "Weekdays at 08:00, Europe/Vienna"
        assert (made["when_missed"], made["when_overlapping"], made["runs_in"]) == ("last", "skip", "one")
        assert made["due_at"] is not None
        path = f"/api/schedules/{made['id']}"
        assert (await web.http.get(path)).json() == made
        listed = (await web.http.get("/api/schedules")).json()
        assert (listed["items"], listed["timezone"]) == ([made], "UTC")
        changed = (
            await web.http.patch(
                path, json={"name": "Evening", "rule": {"kind": "interval", "every_s": 3600}}
            )
        ).json()
        assert (changed["name"], changed["words"], changed["text"]) == ("Evening", "Every hour", NEW["text"])
        paused = (await web.http.patch(path, json={"paused": True})).json()
        assert (paused["paused"], paused["due_at"]) == (True, changed["due_at"])
        assert (await web.http.patch(path, json={"paused": False})).json()["paused"] is False
        stale = await web.http.patch(path, json={"name": "Late", "version": made["version"]})
        assert (stale.status_code, stale.json()["code"]) == (409, "stale_version")
        assert (await web.http.delete(path)).status_code == 204
        assert (await web.http.get(path)).status_code == 404
    made_id = made["id"]
    assert audit_of(data_dir) == [
        ("schedule.made", f"{made_id} {made['name']}"),
        ("schedule.changed", f"{made_id} Evening: name, rule"),
        ("schedule.changed", f"{made_id} Evening: paused"),
        ("schedule.changed", f"{made_id} Evening: paused"),
        ("schedule.deleted", made_id),
    ]


async def test_a_preview_says_the_rule_in_words_with_its_next_five_times(
    store: Store, data_dir: Path
) -> None:
    async with run_web(store, data_dir) as web:
        found = (await web.http.post("/api/schedules/preview", json={"rule": CRON})).json()
        assert found["words"] == "Weekdays at 08:00, UTC"
        assert len(found["times"]) == 5
        assert (await web.http.get("/api/schedules")).json()["items"] == []


async def test_a_sentence_is_read_as_rule_task_and_times_or_as_a_question(
    store: Store, data_dir: Path
) -> None:
    async with run_web(store, data_dir) as web:
        asked = {"sentence": "every weekday at 8 summarise my inbox", "timezone": "Europe/Vienna"}
        found = (await web.http.post("/api/schedules/read", json=asked)).json()
        assert found["preview"]["words"] == "Weekdays at 08:00, Europe/Vienna"
        assert len(found["preview"]["times"]) == 5
        assert found["reading"]["text"] == found["reading"]["name"] == "Summarise my inbox"
        assert found["reading"]["timing"]["rule"] == CRON
        unclear = {"sentence": "On the 31st in the evening clean up"}
        found = (await web.http.post("/api/schedules/read", json=unclear)).json()
        assert found["preview"] is found["reading"]["timing"] is None
        assert [one["label"] for one in found["reading"]["choices"]] == ["18:00", "20:00"]
        for sentence, words in (
            ("on 30 February at 8 go", "never fires"),
            ("at 8 UTC/Moon go", "no time zone"),
        ):
            refused = await web.http.post("/api/schedules/read", json={"sentence": sentence})
            assert refused.status_code == 422
            assert words in refused.json()["detail"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rule": {"kind": "cron", "expression": "0 0 30 2 *"}}, "never fires"),
        ({"rule": {"kind": "cron", "expression": "often"}}, "cannot be read"),
        ({"rule": {"kind": "once", "at": "2020-01-01T08:00"}}, "has passed"),
        ({"rule": {"kind": "interval", "every_s": 1}}, "not possible"),
        ({"timezone": "Europe/Atlantis"}, "no time zone"),
        ({"text": " "}, "empty"),
        ({"name": "a\nb"}, "control"),
    ],
)
async def test_what_cannot_be_saved_is_refused_in_words(
    store: Store, data_dir: Path, change: dict[str, Any], words: str
) -> None:
    async with run_web(store, data_dir) as web:
        refused = await web.http.post("/api/schedules", json=NEW | change)
        assert refused.status_code in (400, 422)
        assert words in refused.text
        made = await make(web)
        assert (await web.http.patch(f"/api/schedules/{made['id']}", json=change)).status_code in (400, 422)
        assert (await web.http.get("/api/schedules")).json()["items"] == [made]


async def test_run_now_is_in_the_history_with_its_session(store: Store, data_dir: Path) -> None:
    async with run_web(store, data_dir) as web:
        session = await new_session(store, "Mine")
        made = await make(web, session_id=session.id)
        path = f"/api/schedules/{made['id']}"
        ran = await web.http.post(f"{path}/run")
        assert ran.status_code == 202
        assert (ran.json()["fate"], ran.json()["is_manual"], ran.json()["session_id"]) == (
            "ran",
            True,
            session.id,
        )
        (found,) = (await web.http.get(f"{path}/occurrences")).json()["items"]
        assert (found["id"], found["turn_id"]) == (ran.json()["id"], ran.json()["turn_id"])
        assert [one["id"] for one in (await web.http.get(path)).json()["last"]] == [found["id"]]
        before = (await web.http.get(f"{path}/occurrences?before=1")).json()
        assert before["items"] == []
    assert audit_of(data_dir)[1:] == [("schedule.run", made["id"])]


async def test_a_session_that_is_not_there_is_refused(store: Store, data_dir: Path) -> None:
    async with run_web(store, data_dir) as web:
        gone = await web.http.post("/api/schedules", json=NEW | {"session_id": "ses_" + "0" * 26})
        assert gone.status_code == 404
