"""Backups over real HTTP: asked for, watched, and only by who may administer."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.backups import BackupSettings
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.web_server import run_web
from tests.unit.backups.kit import runner_of

pytestmark = pytest.mark.anyio


async def test_a_backup_is_asked_for_and_seen_until_it_is_there(
    store: Store, store_kind: str, store_url: str, data_dir: Path, clock: FakeClock
) -> None:
    database = store_url if store_kind == "postgresql" else ""
    runner = await runner_of(store, data_dir, clock, database=database)
    async with run_web(store, data_dir, clock=clock, extras={"backups": runner}) as server:
        client = server.http
        before = (await client.get("/api/backups")).json()
        assert (before["backups"], before["is_running"], before["drill"]) == ([], False, None)
        assert before["folder"] == str(data_dir / "backups")
        asked = await client.post("/api/backups", headers={"idempotency-key": "one"})
        assert asked.status_code == 202
        assert asked.json()["progress"]["phase"] == "waiting"
        await runner.look()
        status = (await client.get("/api/backups")).json()
        (made,) = status["backups"]
        assert (status["is_running"], status["state"]["last_name"]) == (False, made["name"])
        assert (made["problem"], made["is_encrypted"], status["drill"]["problem"]) == ("", False, "")
        assert status["drill"]["name"] == made["name"]
        figures = (await client.get("/metrics")).text
        assert "everturn_backups_drill_is_failing 0" in figures
        assert "everturn_backups_last_timestamp_seconds" in figures
        (line,) = [
            entry["what"]
            for entry in (await client.get("/api/audit")).json()["items"]
            if entry["what"].startswith("backup")
        ]
        assert line == "backup.asked"


async def test_no_token_below_admin_sees_or_asks_for_backups_and_none_can_be_downloaded(
    store: Store, data_dir: Path, clock: FakeClock
) -> None:
    runner = await runner_of(store, data_dir, clock)
    async with run_web(store, data_dir, clock=clock, extras={"backups": runner}) as server:
        client = server.http
        for scope in ("read", "chat", "approve"):
            made = await client.post("/api/tokens", json={"label": scope, "scopes": [scope]})
            token = {"authorization": f"Bearer {made.json()['text']}"}
            for answer in (
                await client.get("/api/backups", headers=token),
                await client.post("/api/backups", headers=token),
            ):
                assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
        await runner.ask()
        await runner.look()
        (made_backup,) = (await runner.status()).backups
        for path in (
            f"/api/backups/{made_backup.name}",
            f"/backups/{made_backup.name}/everturn.db",
            f"/api/files/../backups/{made_backup.name}/everturn.db",
        ):
            assert (await client.get(path)).status_code == 404


async def test_what_is_wrong_is_in_health_and_in_the_list(
    store: Store, data_dir: Path, clock: FakeClock, tmp_path: Path
) -> None:

    gone = BackupSettings(every_h=24, folder=str(tmp_path / "gone"))
    runner = await runner_of(store, data_dir, clock, gone)
    await runner.look()
    async with run_web(store, data_dir, clock=clock, extras={"backups": runner}) as server:
        with anyio.fail_after(60):
            status = (await server.http.get("/api/backups")).json()
            health = (await server.http.get("/api/health")).json()
        assert "is not there" in status["state"]["problem"]
        assert status["state"]["hint"].startswith("Mount it")
        assert "is not there" in health["backup_problem"]
