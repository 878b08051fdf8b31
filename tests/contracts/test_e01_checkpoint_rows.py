"""E01: a checkpoint is a row of its turn, fenced like every write of a turn; what it names stays stored."""

from __future__ import annotations

import pytest

from everturn.domain.checkpoints import ChangeKind
from everturn.domain.errors import BlobMissing, Fenced, Gone, NotFound
from everturn.domain.trees import Entry, Kind, Tree, encode_tree
from everturn.store import Store
from everturn.store.turns.workers import release
from everturn.testing.acting import ME, WORKER, answer, answered, append, claim, complete, new_session, start
from everturn.testing.checkpoints import new_checkpoint, put_tree

pytestmark = pytest.mark.anyio
LATER_MS = -60_000  # a grace or wait that is over already


async def read(store: Store, sha256: str) -> bytes:
    return b"".join([piece async for piece in store.blobs.read(sha256)])


async def collect(store: Store) -> None:
    """Free what nothing names, as if a day had passed between any two steps."""
    for _ in range(2):
        await store.blobs.collect(grace_ms=LATER_MS, wait_ms=LATER_MS)


async def test_e01_a_checkpoint_is_found_by_its_turn_and_as_what_the_workspace_holds(store: Store) -> None:
    session = await new_session(store)
    assert await store.checkpoints.last(ME, session.id) is None
    held = await start(store, session.id, "make a file")
    tree, _ = await put_tree(store, {b"made.txt": b"made by a tool"})
    made = await store.checkpoints.put(new_checkpoint(held, tree))
    other, _ = await put_tree(store, {b"made.txt": b"made again"})
    again = await store.checkpoints.put(new_checkpoint(held, other, "call_2", tree))
    assert await store.checkpoints.of_turn(ME, held.turn.id) == [made, again]
    assert await store.checkpoints.last(ME, session.id) == again
    assert (made.session_id, made.turn_id, made.call_id) == (session.id, held.turn.id, "call_1")
    assert (made.tree, again.before, again.tree) == (tree, tree, other)
    assert made.changes.changed[0].what is ChangeKind.ADDED


async def test_e01_checkpoints_belong_to_their_owner(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "make a file")
    tree, _ = await put_tree(store, {b"made.txt": b"made by a tool"})
    await store.checkpoints.put(new_checkpoint(held, tree))
    with pytest.raises(NotFound):
        await store.checkpoints.last("eve", session.id)
    with pytest.raises(NotFound):
        await store.checkpoints.of_turn("eve", held.turn.id)


@pytest.mark.parametrize("is_claimed", [False, True], ids=["released", "claimed by another"])
async def test_e01_a_worker_that_lost_its_turn_stores_no_checkpoint(store: Store, is_claimed: bool) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "make a file")
    tree, _ = await put_tree(store, {b"made.txt": b"from the dead"})
    await store.database.write(release, WORKER, "crash", False)
    if is_claimed:
        await claim(store, "wrk_two")
    with pytest.raises(Fenced):
        await store.checkpoints.put(new_checkpoint(held, tree))
    assert await store.checkpoints.of_turn(ME, held.turn.id) == []
    assert await store.checkpoints.last(ME, session.id) is None


async def test_e01_no_checkpoint_is_added_to_a_turn_that_has_ended(store: Store) -> None:
    session = await new_session(store)
    held = await answered(store, session.id, "hello", "good morning")
    tree, _ = await put_tree(store, {b"made.txt": b"too late"})
    with pytest.raises(Fenced):
        await store.checkpoints.put(new_checkpoint(held, tree))


async def test_e01_what_a_checkpoint_names_is_never_collected(store: Store) -> None:
    """Also in folders inside, and also in a checkpoint that is not the newest."""
    session = await new_session(store)
    held = await start(store, session.id, "make a file")
    inner, hashes = await put_tree(store, {b"deep.txt": b"deep inside"})
    outer = encode_tree(Tree((Entry(b"folder", Kind.FOLDER, 0o755, 1, inner),)))
    (blob,) = await store.blobs.put_many([outer])
    await store.checkpoints.put(new_checkpoint(held, blob.sha256))
    newest, more = await put_tree(store, {b"made.txt": b"made by a tool"})
    await store.checkpoints.put(new_checkpoint(held, newest, "call_2", blob.sha256))
    (unused,) = await store.blobs.put_many([b"named by nothing"])
    await collect(store)
    assert await read(store, hashes[0]) == b"deep inside"
    assert await read(store, more[0]) == b"made by a tool"
    assert await read(store, blob.sha256) == outer
    with pytest.raises(BlobMissing):
        await read(store, unused.sha256)


async def test_e01_a_purged_session_takes_its_checkpoints_along(store: Store) -> None:
    session = await new_session(store)
    held = await start(store, session.id, "make a file")
    tree, hashes = await put_tree(store, {b"made.txt": b"made by a tool"})
    await store.checkpoints.put(new_checkpoint(held, tree))
    await complete(store, held, await append(store, held, answer("done")))
    await store.sessions.delete(ME, session.id)
    with pytest.raises(Gone):
        await store.checkpoints.last(ME, session.id)
    await collect(store)
    for sha256 in hashes:
        with pytest.raises(BlobMissing):
            await read(store, sha256)


async def test_e01_while_a_tree_is_missing_nothing_is_collected(store: Store) -> None:
    """What it names is not known then, nor when it was stored; deleting anything could delete that."""
    session = await new_session(store)
    held = await start(store, session.id, "make a file")
    (unused,) = await store.blobs.put_many([b"named by nothing"])
    await store.checkpoints.put(new_checkpoint(held, "0" * 64))
    await collect(store)
    assert await read(store, unused.sha256) == b"named by nothing"
