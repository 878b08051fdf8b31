"""everturn memory, as it is typed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everturn.cli.common import OWNER
from everturn.cli.memory import memory
from everturn.domain.fold import fold
from everturn.domain.store_values import Submission
from everturn.store import open_store
from everturn.store.turns.workers import WorkerLock
from everturn.testing import acting

UNKNOWN = "not_00000000000000000000000000"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVERTURN_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def typed(*words: str) -> Result:
    return CliRunner().invoke(memory, list(words))


def noted(text: str) -> str:
    return typed("add", text).stdout.removeprefix("Noted as ").strip().removesuffix(".")


def editor(home: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """An editor that does this; return where it says that it was opened."""
    program, opened = home / "editor", home / "opened"
    program.write_text(f'#!/bin/sh\ncat "$1" > {opened}\n{script}\n')
    program.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(program))
    return opened


def test_a_note_is_added_listed_changed_and_forgotten(home: Path) -> None:
    note = noted("Prefers tea.")
    assert "Prefers tea." in typed("list").stdout
    assert typed("edit", note, "Prefers", "coffee.").stdout == "Changed: Prefers coffee.\n"
    assert typed("list", "--all").stdout.split("  ")[-1] == "Prefers coffee.\n"
    assert typed("forget", note).stdout == "Deleted: Prefers coffee.\n"
    assert typed("list").stdout == "There are no notes yet.\n"


def test_a_note_is_changed_in_an_editor(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = noted("Prefers tea.")
    opened = editor(home, monkeypatch, 'printf "Prefers water." > "$1"')
    assert typed("edit", note).stdout == "Changed: Prefers water.\n"
    assert opened.read_text().strip() == "Prefers tea."


def test_an_editor_that_is_left_without_saving_changes_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = noted("Prefers tea.")
    editor(home, monkeypatch, "true")
    left = typed("edit", note)
    assert (left.stdout, left.exit_code) == ("Nothing was changed.\n", 0)
    assert "Prefers tea." in typed("list").stdout


def test_no_editor_is_opened_for_a_note_that_is_not_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted("Prefers tea.")
    opened = editor(home, monkeypatch, 'printf "Lost." > "$1"')
    done = typed("edit", UNKNOWN)
    assert (done.exit_code, opened.exists()) == (1, False)
    assert str(done.exception) == f"There is no note {UNKNOWN}."


def test_committing_says_what_came_of_it(home: Path) -> None:
    noted("Prefers tea.")
    assert typed("commit").stdout == "Nothing was pending.\n"
    session = asyncio.run(_session(home))
    assert typed("commit", session).stdout == "Nothing was pending.\n"
    unknown = typed("commit", "ses_00000000000000000000000000")
    assert unknown.exit_code == 1
    assert str(unknown.exception) == "There is no session ses_00000000000000000000000000."


def test_a_commit_is_under_way_while_its_process_lives_and_no_longer(home: Path) -> None:
    session = asyncio.run(_commit_begun(home))
    lock = WorkerLock(home / "workers" / f"{acting.WORKER}.lock")
    assert lock.try_take()  # as the process that commits has it
    assert "under way" in typed("owed").stdout
    assert "Another commit of this session is under way" in typed("commit", session).stderr
    lock.release(and_file=False)  # it was killed
    owed = typed("owed").stdout
    assert session in owed
    assert "under way" not in owed
    assert "hello" in owed, "a session without a title is called by its first words"


async def _commit_begun(home: Path) -> str:
    """A session whose commit has begun when its process ends without a word."""
    async with open_store(data_dir=home) as store:
        session = await store.sessions.create(OWNER)
        await store.workers.register(acting.WORKER)
        await store.turns.accept(OWNER, session.id, Submission(text="hello"))
        held = await acting.claim(store)
        number = await acting.append(store, held, acting.answer("hi"))
        journal = await store.journal.of_turn(OWNER, held.turn.id)
        folded = fold(held.turn.id, journal, is_ended=True)
        await store.turns.complete(held.turn.id, held.epoch, number, folded, provider="notes")
        found = await store.ledger.next(OWNER, session.id, acting.WORKER)
        assert found is not None
        assert await store.ledger.begin(OWNER, session.id, found, "", acting.WORKER, 60_000)
        return session.id


async def _session(home: Path) -> str:
    async with open_store(data_dir=home) as store:
        return (await store.sessions.create(OWNER)).id
