"""E06, G01: turns of a session that works in a project folder are claimed only on the machine that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.domain.machine import Machine
from everturn.domain.sessions import NewSession, SessionPatch
from everturn.domain.store_values import NO_REQUEST, Submission
from everturn.store import Store
from tests.conftest import OpenAnother

pytestmark = pytest.mark.anyio
only_postgres = pytest.mark.parametrize("store_kind", ["postgresql"], indirect=True)
OWNER = "ada"
PROJECT = NewSession(project="/srv/site")


@pytest.fixture
async def elsewhere(open_another: OpenAnother, store: Store, tmp_path: Path) -> Store:
    """A second machine on the same database. Both have a worker, ``wrk_here`` and ``wrk_there``."""
    other = await open_another(data_dir=tmp_path / "elsewhere")
    await store.workers.register("wrk_here")
    await other.workers.register("wrk_there")
    return other


async def ask(store: Store, session_id: str) -> str:
    return (await store.turns.accept(OWNER, session_id, Submission(text="hello"))).turn.id


async def claimed(store: Store, worker: str) -> list[str]:
    return [claim.turn.id for claim in await store.turns.claim(worker, limit=10)]


def name_of(machine: str | None) -> str:
    return "" if machine is None else Machine.parse(machine).id


@only_postgres
async def test_g01_a_turn_of_a_project_runs_where_its_folder_is(store: Store, elsewhere: Store) -> None:
    project = await store.sessions.create(OWNER, PROJECT)
    plain = await store.sessions.create(OWNER)
    in_project, in_plain = await ask(elsewhere, project.id), await ask(store, plain.id)
    assert await claimed(elsewhere, "wrk_there") == [in_plain]
    assert await claimed(elsewhere, "wrk_there") == []
    assert await claimed(store, "wrk_here") == [in_project]


@only_postgres
async def test_g01_every_machine_says_which_one_has_the_folder(store: Store, elsewhere: Store) -> None:
    session = await store.sessions.create(OWNER, PROJECT)
    (listed,) = (await elsewhere.sessions.list(OWNER)).items
    assert name_of(listed.machine) == name_of(session.machine) == store.machine.id
    assert elsewhere.machine.id not in (store.machine.id, "")
    assert (await store.sessions.create(OWNER)).machine is None, "a workspace of our own can be anywhere"


@only_postgres
async def test_g01_choosing_the_folder_on_another_machine_moves_the_session_there(
    store: Store, elsewhere: Store
) -> None:
    session = await store.sessions.create(OWNER, PROJECT)
    turn = await ask(store, session.id)
    moved = await elsewhere.sessions.change(OWNER, session.id, SessionPatch(project="/srv/site"))
    assert name_of(moved.machine) == elsewhere.machine.id
    assert await claimed(store, "wrk_here") == []
    assert await claimed(elsewhere, "wrk_there") == [turn]
    freed = await elsewhere.sessions.change(OWNER, session.id, SessionPatch(project=None))
    assert (freed.project, freed.machine) == (None, None)
    renamed = await elsewhere.sessions.change(OWNER, session.id, SessionPatch(title="Site"))
    assert renamed.machine is None


@only_postgres
async def test_e06_a_projects_turn_whose_machine_died_waits_for_that_machine(
    store: Store, elsewhere: Store, open_another: OpenAnother, data_dir: Path
) -> None:
    session = await store.sessions.create(OWNER, PROJECT)
    turn = await ask(store, session.id)
    assert await claimed(store, "wrk_here") == [turn]
    store.workers.close()
    restarted = await open_another(data_dir=data_dir)
    await restarted.workers.register("wrk_again")
    assert await restarted.workers.take_over("wrk_again") == 1
    assert await claimed(elsewhere, "wrk_there") == []
    assert await claimed(restarted, "wrk_again") == [turn], "its data folder says that it is the same machine"


@only_postgres
async def test_e06_a_branch_stays_on_the_machine_of_its_project(store: Store, elsewhere: Store) -> None:
    session = await store.sessions.create(OWNER, PROJECT)
    turn = await ask(store, session.id)
    await store.turns.cancel(OWNER, turn)
    copy = await elsewhere.transcript.branch(OWNER, session.id, turn, NO_REQUEST)
    assert (copy.project, name_of(copy.machine)) == ("/srv/site", store.machine.id)


async def test_e06_a_session_that_names_no_machine_is_claimed_by_any(store: Store, store_kind: str) -> None:
    """Sessions of earlier versions name none, and with SQLite there is one machine only."""
    session = await store.sessions.create(OWNER, NewSession(project="/srv/site"))
    assert (session.machine is None) == (store_kind == "sqlite")
    await store.workers.register("wrk_here")
    turn = await ask(store, session.id)
    assert await claimed(store, "wrk_here") == [turn]
