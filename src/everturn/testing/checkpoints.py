"""What tests of checkpoints share: trees put into the blobs of a store, and rows that name them."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.domain.checkpoints import Cause, ChangeKind, Changes, FileChange, NewCheckpoint
from everturn.domain.store_values import Claim
from everturn.domain.trees import EMPTY_TREE, Entry, Kind, Tree, decode_tree, encode_tree, hash_bytes
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


async def files_in(store: Store, tree: str) -> dict[str, bytes]:
    """The files of a tree by their path, with those of the folders in it."""
    if tree == EMPTY_TREE:
        return {}
    found: dict[str, bytes] = {}
    for entry in decode_tree(await _read(store, tree), tree).entries:
        name = entry.name.decode()
        if entry.kind is Kind.FILE:
            found[name] = await _read(store, entry.sha256)
        elif entry.kind is Kind.FOLDER:
            inside = await files_in(store, entry.sha256)
            found |= {f"{name}/{path}": data for path, data in inside.items()}
    return found


async def _read(store: Store, sha256: str) -> bytes:
    return b"".join([piece async for piece in store.blobs.read(sha256)])
