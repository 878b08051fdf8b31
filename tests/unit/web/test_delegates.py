"""The endpoints of delegates, beyond what the tools do."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.domain.delegates import DelegateBounds, DelegateTask, NewDelegates
from everturn.domain.sessions import NewSession
from everturn.domain.turns import Failure
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answer, append, claim, complete, new_session, start
from everturn.testing.models import Wait
from everturn.testing.web_server import run_web
from everturn.tools import EverturnToolbox, ToolServices, built_in
from everturn.tools.profiles import Profile, Profiles
from tests.auditing import audit_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


async def test_a_delegate_says_why_it_failed_and_its_files_can_be_refused(
    store: Store, data_dir: Path
) -> None:
    session = await new_session(store)
    turn = (await start(store, session.id, "share")).turn
    tasks = (DelegateTask("a"), DelegateTask("b"), DelegateTask("c"))
    new = NewDelegates(turn.id, "c1", tasks, False, False, DelegateBounds(2, 8))
    failing, done, working = await store.delegates.start(new)
    held = {one.id: await claim(store, session_id=one.id) for one in (failing, done, working)}
    failure = Failure("model_refused", "It was refused.", "Choose another model.")
    await store.turns.fail(failing.turn_id, held[failing.id].epoch, failure)
    await complete(store, held[done.id], await append(store, held[done.id], answer("Done.")))

    # The server may take over what the test's worker holds; its model says nothing, so that one keeps working.
    silent = [[Wait(anyio.Event())] for _ in range(4)]
    async with (
        EverturnToolbox(
            data_dir, ToolServices(store.records, store.search, FakeClock()), built_in()
        ) as tools,
        run_web(store, data_dir, *silent, extras={"toolbox": tools}) as web,
    ):
        listed = (await web.http.get(f"/api/turns/{turn.id}/delegates")).json()["items"]
        assert [one["state"] for one in listed] == ["failed", "completed", "running"]
        assert listed[0]["failure"]["message"] == "It was refused."
        assert listed[1]["failure"] is None
        too_early = await web.http.post(f"/api/delegates/{working.id}/refuse")
        assert (too_early.status_code, too_early.json()["code"]) == (409, "wrong_state")
        refused = (await web.http.post(f"/api/delegates/{done.id}/refuse")).json()
        assert (refused["is_refused"], refused["is_applied"]) == (True, False)
    assert (await store.delegates.get(ME, done.id)).refused_at is not None
    assert audit_of(data_dir) == [("delegate.refused", done.id)]


async def test_files_are_not_applied_to_a_project_whose_profile_only_reads(
    store: Store, data_dir: Path, tmp_path: Path
) -> None:
    reading = Profiles({**built_in().profiles, "reader": Profile(name="reader", tools=("read_file",))})
    new = NewSession(project=str(tmp_path), profile="reader")
    session = await store.sessions.create(ME, new)
    turn = (await start(store, session.id, "share")).turn
    asked = NewDelegates(turn.id, "c1", (DelegateTask("a"),), False, False, DelegateBounds(2, 8))
    (delegate,) = await store.delegates.start(asked)
    held = await claim(store, session_id=delegate.id)
    await complete(store, held, await append(store, held, answer("Done.")))
    services = ToolServices(store.records, store.search, FakeClock())
    async with (
        EverturnToolbox(data_dir, services, reading) as tools,
        run_web(store, data_dir, extras={"toolbox": tools}) as web,
    ):
        refused = await web.http.post(f"/api/delegates/{delegate.id}/apply", json={})
        assert (refused.status_code, refused.json()["code"]) == (403, "denied")
        assert "the profile reader only reads" in refused.json()["detail"]
