"""A11: a generated title never takes the place of a name that the user gave."""

from __future__ import annotations

import pytest

from everturn.domain.errors import Gone
from everturn.domain.sessions import SessionPatch
from everturn.store import Store
from everturn.testing.acting import ME, new_session

pytestmark = pytest.mark.anyio


async def test_a11_a_name_given_meanwhile_stays(store: Store) -> None:
    session = await new_session(store)
    await store.sessions.change(ME, session.id, SessionPatch(title="mine"))
    await store.sessions.set_title(ME, session.id, "generated")
    assert (await store.sessions.get(ME, session.id)).title == "mine"


async def test_a11_a_title_is_written_to_the_session_as_it_is_now(store: Store) -> None:
    session = await new_session(store)
    await store.sessions.change(ME, session.id, SessionPatch(pinned=True, tags=("a", "b")))
    now = await store.sessions.set_title(ME, session.id, "generated")
    assert (now.title, now.pinned, now.tags, now.is_title_given) == ("generated", True, ("a", "b"), False)
    assert (await store.sessions.set_title(ME, session.id, "generated anew")).title == "generated anew"


async def test_a11_a_name_that_was_taken_back_may_be_generated_again(store: Store) -> None:
    session = await new_session(store, "mine")
    await store.sessions.change(ME, session.id, SessionPatch(title=""))
    assert (await store.sessions.set_title(ME, session.id, "generated")).title == "generated"


async def test_a11_a_title_for_a_deleted_session_is_refused(store: Store) -> None:
    session = await new_session(store)
    await store.sessions.delete(ME, session.id)
    with pytest.raises(Gone):
        await store.sessions.set_title(ME, session.id, "generated")
