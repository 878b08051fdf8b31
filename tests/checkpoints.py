"""What tests of checkpoints share: trees put into the blobs of a store, and rows that name them."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.domain.checkpoints import Cause, ChangeKind, Changes, FileChange, NewCheckpoint
from everturn.domain.store_values import Claim
from everturn.domain.trees import EMPTY_TREE, Entry, Kind, Tree, encode_tree, hash_bytes
from everturn.store import Store

CHANGES = Changes((FileChange("made.txt", ChangeKind.ADDED, 14),), 1)


async def put_tree(store: Store, files: Mapping[bytes, bytes]) -> tuple[str, list[str]]:
    """Store a folder with these files; return its tree and every hash that it needs."""
    entries = [Entry(name, Kind.FILE, 0o644, len(data), hash_bytes(data)) for name, data in files.items()]
    tree = encode_tree(Tree(tuple(sorted(entries, key=lambda entry: entry.name))))
    stored = await store.blobs.put_many([*files.values(), tree])
    return stored[-1].sha256, [blob.sha256 for blob in stored]


def new_checkpoint(
    held: Claim,
    tree: str,
    call_id: str | None = "call_1",
    before: str = EMPTY_TREE,
    *,
    is_of_parent: bool = False,
) -> NewCheckpoint:
    return NewCheckpoint(
        turn_id=held.turn.id,
        epoch=held.epoch,
        before=before,
        tree=tree,
        changes=CHANGES,
        cause=Cause.FOUND if call_id is None else Cause.CALL,
        call_id=call_id,
        is_of_parent=is_of_parent,
    )
