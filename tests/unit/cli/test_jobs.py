"""everturn jobs"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from everturn.cli.common import OWNER, with_store
from everturn.cli.main import everturn
from everturn.config import Config
from everturn.domain.errors import NotFound
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.jobs import JobEnding
from everturn.store import Store
from everturn.testing.acting import new_job, new_session


def call(home: Path, *arguments: str) -> str:
    result = CliRunner().invoke(everturn, ["jobs", *arguments, "--home", str(home)])
    if result.exception is not None:
        raise result.exception
    return result.output


async def _add_two(store: Store, config: Config) -> tuple[str, str]:
    """A job that runs, and one that has ended."""
    session = await new_session(store)
    running, ended = new_job(1, when_ended=WhenEnded.RECORD), new_job(2, when_ended=WhenEnded.RECORD)
    for new in (running, ended):
        await store.jobs.add(OWNER, session.id, new, running_max=2)
    await store.jobs.end(ended.id, JobEnding(JobState.ENDED, 3))
    return running.id, ended.id


def test_jobs_are_listed_and_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    running, ended = with_store(home, _add_two, makes_one=True)
    newest, oldest = call(home).splitlines()
    assert newest.startswith(ended)
    assert "exit 3" in newest
    assert oldest.startswith(running)
    assert "running" in oldest
    assert "will be stopped" in call(home, "stop", running)
    assert "stopping" in call(home, "--limit", "5").splitlines()[1]
    assert "is over: exit 3" in call(home, "stop", ended)


def test_jobs_as_json_and_of_one_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _, ended = with_store(home, _add_two, makes_one=True)
    (line,) = call(home, "--json", "--limit", "1").splitlines()
    found = json.loads(line)
    assert (found["id"], found["state"], found["exit_code"]) == (ended, "ended", 3)
    assert len(call(home, "--session", found["session_id"]).splitlines()) == 2
    assert call(home, "--session", "ses_" + "0" * 26) == "There are no jobs.\n"


def test_a_job_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with_store(home, _add_two, makes_one=True)
    with pytest.raises(NotFound):
        call(home, "stop", "job_" + "9" * 26)
