"""E02: which files a turn has: its own last checkpoint, or that of the nearest turn before it."""

from __future__ import annotations

import pytest

from everturn.domain.checkpoints import Cause, Changes, NewSave
from everturn.domain.errors import NotFound, WrongState
from everturn.domain.store_values import NO_REQUEST
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.working_copies import FilesPlan, RestoredFiles
from everturn.store import Store
from everturn.testing.acting import ME, answer, answered, append, complete, new_session, start
from everturn.testing.checkpoints import CHANGES, new_checkpoint, put_tree

pytestmark = pytest.mark.anyio


async def saved(store: Store, session_id: str, tree: str, cause: Cause = Cause.SAVED) -> str:
    last = await store.checkpoints.last(ME, session_id)
    new = NewSave(
        after=last.id if last else None,
        before=last.tree if last else EMPTY_TREE,
        tree=tree,
        changes=CHANGES,
        cause=cause,
    )
    made = await store.checkpoints.save(ME, session_id, new)
    assert made is not None
    return made.id


async def test_e02_a_turn_without_changes_has_the_files_of_the_turn_before_it(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "make a file")
    first, _ = await put_tree(store, {b"made.txt": b"one"})
    second, _ = await put_tree(store, {b"made.txt": b"two"})
    await store.checkpoints.put(new_checkpoint(held, first))
    made = await store.checkpoints.put(new_checkpoint(held, second, "call_2", first))
    await complete(store, held, await append(store, held, answer("done")))
    later = await answered(store, session.id, "hello", "good morning")
    assert await store.checkpoints.at(ME, session.id, later.turn.id) == made
    assert await store.checkpoints.at(ME, session.id, held.turn.id) == made
    assert await store.checkpoints.at(ME, session.id, None) is None


async def test_e02_without_a_turn_there_is_what_was_saved_before_the_first(store: Store) -> None:
    session = await new_session(store)
    tree, _ = await put_tree(store, {b"notes.txt": b"mine"})
    first = await saved(store, session.id, tree)
    held = await answered(store, session.id, "hello", "good morning")
    for turn_id in (None, held.turn.id):
        found = await store.checkpoints.at(ME, session.id, turn_id)
        assert found is not None
        assert (found.id, found.turn_id, found.epoch, found.cause) == (first, None, 0, Cause.SAVED)


async def test_e02_what_a_user_saved_belongs_to_the_last_turn(store: Store) -> None:
    session = await new_session(store)
    held = await answered(store, session.id, "hello", "good morning")
    tree, _ = await put_tree(store, {b"notes.txt": b"mine"})
    made = await store.checkpoints.get(ME, session.id, await saved(store, session.id, tree))
    assert made.turn_id == held.turn.id
    await store.transcript.undo(ME, session.id, NO_REQUEST)
    assert await store.checkpoints.at(ME, session.id, None) is None


async def test_e02_changes_found_before_the_first_call_belong_to_the_turn_before(store: Store) -> None:
    session = await new_session(store)
    before = await answered(store, session.id, "hello", "good morning")
    held = await start(store, session.id, "make a file")
    tree, _ = await put_tree(store, {b"notes.txt": b"mine"})
    found = new_checkpoint(held, tree, None, is_of_parent=True)
    made = await store.checkpoints.put(found)
    assert (made.turn_id, made.epoch) == (before.turn.id, 0)
    assert await store.checkpoints.of_turn(ME, held.turn.id) == []
    assert await store.checkpoints.at(ME, session.id, held.turn.id) == made


async def test_e02_a_save_that_was_overtaken_stores_nothing(store: Store) -> None:
    session = await new_session(store)
    tree, _ = await put_tree(store, {b"notes.txt": b"mine"})
    first = await saved(store, session.id, tree)
    other, _ = await put_tree(store, {b"notes.txt": b"mine again"})
    late = NewSave(after=None, before=EMPTY_TREE, tree=other, changes=CHANGES)
    assert await store.checkpoints.save(ME, session.id, late) is None
    last = await store.checkpoints.last(ME, session.id)
    assert last is not None
    assert last.id == first


async def test_e02_a_checkpoint_of_another_session_is_not_found(store: Store) -> None:
    session, other = await new_session(store), await new_session(store)
    tree, _ = await put_tree(store, {b"notes.txt": b"mine"})
    first = await saved(store, session.id, tree)
    with pytest.raises(NotFound):
        await store.checkpoints.get(ME, other.id, first)
    with pytest.raises(NotFound):
        await store.checkpoints.get("eve", session.id, first)
    held = await answered(store, session.id, "hello", "good morning")
    with pytest.raises(NotFound):
        await store.checkpoints.at(ME, other.id, held.turn.id)


async def test_e02_nothing_is_saved_while_the_folder_is_being_restored(store: Store) -> None:
    session = await new_session(store)
    tree, _ = await put_tree(store, {b"notes.txt": b"mine"})
    await saved(store, session.id, tree)
    other, _ = await put_tree(store, {b"notes.txt": b"as it was"})
    last = await store.checkpoints.last(ME, session.id)
    assert last is not None
    plan = FilesPlan(after=last.id, present=tree, changes=Changes(), wanted=other, restores=CHANGES)
    made = await store.working_copies.restore(ME, session.id, plan)
    assert (await store.working_copies.get(ME, session.id)).wanted == other
    late = NewSave(after=made.id, before=other, tree=tree, changes=CHANGES)
    with pytest.raises(WrongState):
        await store.checkpoints.save(ME, session.id, late)
    assert await store.working_copies.settle(ME, session.id, other, None, RestoredFiles())
    assert await store.checkpoints.save(ME, session.id, late) is not None
