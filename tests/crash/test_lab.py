"""The lab as a command: faults of each kind, a report, and how to see a failure again."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from everturn.domain.probe import Moment
from everturn.lab import Campaign, Plan, Trial, write_report
from everturn.lab.campaign import Failed
from everturn.lab.report import as_html, as_markdown
from everturn.testing.forks import open_command, run_command

pytestmark = pytest.mark.anyio


def test_a_short_campaign_finds_nothing_and_writes_its_report(tmp_path: Path) -> None:
    counts = ["--kills", "2", "--cuts", "10", "--disk-faults", "2"]
    done = run_command(
        "lab", *counts, "--seed", "11", "--report", str(tmp_path), environ={}, stdin="", timeout_s=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "lab.md").read_text()
    assert "life 0 (kill): 1 kill; 0 failed" in done.stderr  # how far it is, also where there is no terminal
    assert "14 faults. Nothing that was acknowledged was lost" in text
    assert "| power | 10 | 0 |" in text
    assert "| kill | 2 | 0 |" in text
    assert "| disk | 2 | 0 |" in text
    assert f" of {len(Moment)} named moments" in text
    assert "<svg" in (tmp_path / "lab.html").read_text()


async def test_a_campaign_that_is_ended_reports_what_it_tried(tmp_path: Path) -> None:
    words = ["lab", "--only", "power", "--minutes", "60", "--report", str(tmp_path)]
    async with open_command(*words, environ=os.environ, reads_errors=True) as process:
        errors = TextReceiveStream(process.stderr)
        text = ""
        with anyio.fail_after(120):
            while "1 power; 0 failed" not in text:
                text += await errors.receive()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert "Nothing that was acknowledged was lost" in (tmp_path / "lab.md").read_text()


async def test_postgresql_faults_lose_nothing(tmp_path: Path) -> None:
    campaign = Campaign(Plan(seed=5, counts={"database": 3}), tmp_path, lambda _: None)
    await campaign.run()
    assert campaign.tally()["database"] == 3
    assert campaign.failed == []


def test_a_failure_is_reported_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    campaign = Campaign(Plan(seed=7, counts={"kill": 0, "power": 0}), tmp_path, lambda _: None)
    trial = Trial("power", "unsynced torn", 0.5, "AssertionError: <turn> is missing")
    campaign.trials.append(trial)
    campaign.failed.append(Failed(trial, 12))
    assert "1 of them left something lost or wrong" in as_markdown(campaign)
    assert "everturn lab --only kill --only power --seed 7 --life 12" in as_markdown(campaign)
    assert "&lt;turn&gt; is missing" in as_html(campaign)
    assert all(path.exists() for path in write_report(campaign, tmp_path / "report"))


async def test_a_life_that_the_lab_itself_ends_is_reported_and_the_campaign_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = 0

    async def life(folder: Path, choice: random.Random) -> AsyncIterator[Trial]:
        nonlocal lives
        lives += 1
        if lives == 1:
            raise OSError("no room for the life")
        yield Trial("kill", "turn.claimed", 0.1)

    monkeypatch.setattr("everturn.lab.campaign.kill", life)
    campaign = Campaign(Plan(seed=7, counts={"kill": 2}), tmp_path, lambda _: None)
    await campaign.run()
    assert lives == 2
    assert [failed.trial.where for failed in campaign.failed] == ["the lab itself"]
    assert "no room for the life" in as_markdown(campaign)
