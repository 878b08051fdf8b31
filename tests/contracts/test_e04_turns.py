"""E04: a turn says which files it changed, also after its steps were thinned to one checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from everturn.domain.checkpoints import (
    Cause,
    ChangeKind,
    Changes,
    FileChange,
    NewCheckpoint,
    NewSave,
    TurnFiles,
    merge_changes,
    parse_at,
)
from everturn.domain.errors import BlobMissing
from everturn.domain.store_values import Claim, Request
from everturn.domain.trees import EMPTY_TREE
from everturn.domain.turns import Turn
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.acting import ME, answer, append, complete, new_session, start
from everturn.testing.checkpoints import put_tree
from tests.conftest import RunSql

pytestmark = pytest.mark.anyio
DAY_MS = 86_400_000
ADDED, CHANGED, DELETED = ChangeKind.ADDED, ChangeKind.CHANGED, ChangeKind.DELETED
LATER_MS = -60_000  # a grace or wait that is over already


def changes(*listed: tuple[str, ChangeKind, int], total: int = 0) -> Changes:
    made = tuple(FileChange(path, what, size) for path, what, size in listed)
    return Changes(made, total or len(made))


def merged(*steps: Changes) -> list[tuple[str, ChangeKind, int]]:
    return [(change.path, change.what, change.size) for change in merge_changes(steps).changed]


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        ([(ADDED, 1)], [(ADDED, 1)]),
        ([(ADDED, 1), (CHANGED, 2)], [(ADDED, 2)]),
        ([(ADDED, 1), (DELETED, 0)], []),
        ([(CHANGED, 1), (DELETED, 0)], [(DELETED, 0)]),
        ([(DELETED, 0), (ADDED, 3)], [(CHANGED, 3)]),
        ([(DELETED, 0), (ADDED, 3), (DELETED, 0)], [(DELETED, 0)]),
        ([(ADDED, 1), (DELETED, 0), (ADDED, 2)], [(ADDED, 2)]),
    ],
)
def test_e04_steps_are_merged_into_what_they_changed_in_the_end(
    steps: Sequence[tuple[ChangeKind, int]], end: Sequence[tuple[ChangeKind, int]]
) -> None:
    assert merged(*(changes(("a", what, size)) for what, size in steps)) == [("a", *each) for each in end]


def test_e04_changes_that_are_not_listed_are_counted() -> None:
    found = merge_changes([changes(("b", ADDED, 1), total=300), changes(("a", ADDED, 1))])
    assert [change.path for change in found.changed] == ["a", "b"]
    assert found.changed_total == 301


async def step(store: Store, held: Claim, number: int, before: str, made: Changes) -> str:
    tree, _ = await put_tree(store, {b"a": b"version %d" % number})
    new = NewCheckpoint(
        turn_id=held.turn.id,
        epoch=held.epoch,
        before=before,
        tree=tree,
        changes=made,
        call_id=f"call_{number}",
    )
    await store.checkpoints.put(new)
    return tree


async def end(store: Store, held: Claim) -> None:
    await complete(store, held, await append(store, held, answer("done")))


async def turns(store: Store, session_id: str) -> dict[str, Turn]:
    page = await store.transcript.page(ME, session_id)
    return {turn.id: turn for turn in page.turns}


async def worked(store: Store, session_id: str) -> tuple[str, list[str]]:
    """A turn of three steps; its id, and the trees of each."""
    held = await start(store, session_id, "work")
    one = await step(store, held, 1, EMPTY_TREE, changes(("a", ADDED, 9), ("tmp", ADDED, 1)))
    two = await step(store, held, 2, one, changes(("a", CHANGED, 9)))
    three = await step(store, held, 3, two, changes(("tmp", DELETED, 0)))
    await end(store, held)
    return held.turn.id, [one, two, three]


async def test_e04_a_page_of_messages_says_what_each_turn_changed(store: Store) -> None:
    session = await new_session(store)
    turn, _ = await worked(store, session.id)
    held = await start(store, session.id, "talk")
    await end(store, held)
    found = await turns(store, session.id)
    assert found[turn].files == TurnFiles((FileChange("a", ADDED, 9),), 1)
    assert found[held.turn.id].files is None


async def test_e04_what_a_user_changed_after_a_turn_is_not_its_work(store: Store) -> None:
    session = await new_session(store)
    turn, trees = await worked(store, session.id)
    last = await store.checkpoints.last(ME, session.id)
    assert last is not None
    tree, _ = await put_tree(store, {b"mine": b"mine"})
    new = NewSave(after=last.id, before=trees[-1], tree=tree, changes=changes(("mine", ADDED, 4)))
    assert await store.checkpoints.save(ME, session.id, new) is not None
    assert (await turns(store, session.id))[turn].files == TurnFiles((FileChange("a", ADDED, 9),), 1)


async def tree_at(store: Store, session_id: str, at: str) -> str:
    point = parse_at(at)
    assert point is not None
    return await store.checkpoints.tree_at(ME, session_id, point)


async def test_e04_what_a_turn_found_and_made_is_without_what_a_user_changed_around_it(store: Store) -> None:
    """Also if the user changed files after an undo, which belong to the turn before."""
    session = await new_session(store)
    first, trees = await worked(store, session.id)
    held = await start(store, session.id, "again")
    second = await step(store, held, 4, trees[-1], changes(("a", CHANGED, 9)))
    await end(store, held)
    talked = await start(store, session.id, "talk")
    await end(store, talked)
    mine, _ = await put_tree(store, {b"mine": b"mine"})
    last = await store.checkpoints.last(ME, session.id)
    assert last is not None
    new = NewSave(after=last.id, before=second, tree=mine, changes=changes(("mine", ADDED, 4)))
    for undone in (0, 2):  # saved after the last turn, then after the first one
        for _ in range(undone):
            await store.transcript.undo(ME, session.id, Request())
        saved = await store.checkpoints.save(ME, session.id, new)
        assert saved is not None
        new = msgspec.structs.replace(new, after=saved.id)
    assert await tree_at(store, session.id, first) == mine
    assert await tree_at(store, session.id, f"made:{first}") == trees[-1]
    assert await tree_at(store, session.id, f"before:{held.turn.id}") == trees[-1]
    assert await tree_at(store, session.id, f"made:{held.turn.id}") == second
    assert await tree_at(store, session.id, talked.turn.id) == mine
    for point in ("before", "made"):
        assert await tree_at(store, session.id, f"{point}:{talked.turn.id}") == second


async def test_e04_after_the_grace_period_one_checkpoint_per_turn_is_kept(
    store: Store, clock: FakeClock
) -> None:
    session = await new_session(store)
    turn, trees = await worked(store, session.id)
    before = await turns(store, session.id)
    *_, last = await store.checkpoints.of_turn(ME, turn)
    await clock.advance(2 * DAY_MS / 1000)
    assert await store.upkeep.prune(older_than_ms=DAY_MS) == 1
    (kept,) = await store.checkpoints.of_turn(ME, turn)
    assert (kept.id, kept.before, kept.tree) == (last.id, EMPTY_TREE, trees[-1])
    assert kept.cause is Cause.CALL
    assert (await turns(store, session.id))[turn].files == before[turn].files
    assert await store.checkpoints.last(ME, session.id) == kept
    for _ in range(2):
        await store.blobs.collect(grace_ms=LATER_MS, wait_ms=LATER_MS)
    assert [piece async for piece in store.blobs.read(trees[-1])]
    for tree in trees[:-1]:
        with pytest.raises(BlobMissing):
            await anext(store.blobs.read(tree))


async def test_e04_what_the_workspace_holds_is_kept_whatever_its_place(
    store: Store, clock: FakeClock
) -> None:
    """Also if the turn it belongs to has later checkpoints, of a user."""
    session = await new_session(store)
    turn, trees = await worked(store, session.id)
    for number in (4, 5):
        last = await store.checkpoints.last(ME, session.id)
        assert last is not None
        tree, _ = await put_tree(store, {b"a": b"saved %d" % number})
        new = NewSave(after=last.id, before=last.tree, tree=tree, changes=changes(("a", CHANGED, 7)))
        await store.checkpoints.save(ME, session.id, new)
    saved = await store.checkpoints.last(ME, session.id)
    await clock.advance(2 * DAY_MS / 1000)
    await store.upkeep.prune(older_than_ms=DAY_MS)
    own, of_user = await store.checkpoints.of_turn(ME, turn)
    assert saved is not None
    assert (own.tree, of_user.id, of_user.before) == (trees[-1], saved.id, trees[-1])
    assert (await store.checkpoints.last(ME, session.id)) == of_user


async def test_e04_the_checkpoint_that_the_workspace_holds_is_not_thinned(
    store: Store, clock: FakeClock, run_sql: RunSql
) -> None:
    session = await new_session(store)
    turn, _ = await worked(store, session.id)
    first, *_ = await store.checkpoints.of_turn(ME, turn)
    await run_sql(
        f"UPDATE workspaces SET checkpoint_no = (SELECT checkpoint_no FROM checkpoints WHERE id = '{first.id}')"
    )
    await clock.advance(2 * DAY_MS / 1000)
    await store.upkeep.prune(older_than_ms=DAY_MS)
    last = await store.checkpoints.last(ME, session.id)
    assert last is not None
    assert last.id == first.id


async def test_e04_what_a_restore_replaced_is_kept(store: Store, clock: FakeClock) -> None:
    """Otherwise a user's own version would be gone an hour after they were told that it stays."""
    session = await new_session(store)
    turn, trees = await worked(store, session.id)
    made = []
    for number, cause in enumerate((Cause.SAVED, Cause.SAVED, Cause.RESTORED, Cause.SAVED), start=4):
        last = await store.checkpoints.last(ME, session.id)
        assert last is not None
        tree, _ = await put_tree(store, {b"a": b"saved %d" % number})
        new = NewSave(
            after=last.id, before=last.tree, tree=tree, changes=changes(("a", CHANGED, 7)), cause=cause
        )
        made.append(await store.checkpoints.save(ME, session.id, new))
    await clock.advance(2 * DAY_MS / 1000)
    await store.upkeep.prune(older_than_ms=DAY_MS)
    own, replaced, present = await store.checkpoints.of_turn(ME, turn)
    _, mine, _, newest = made
    assert mine is not None
    assert newest is not None
    assert (own.tree, replaced.id, replaced.before) == (trees[-1], mine.id, trees[-1])
    assert (present.id, present.before) == (newest.id, mine.tree)


async def test_e04_a_turn_of_a_younger_session_is_not_thinned(store: Store) -> None:
    session = await new_session(store)
    turn, _ = await worked(store, session.id)
    assert await store.upkeep.prune(older_than_ms=DAY_MS) == 0
    assert len(await store.checkpoints.of_turn(ME, turn)) == 3
