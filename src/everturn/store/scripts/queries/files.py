"""Queries of files: uploads, the blobs and packs that hold bytes, checkpoints of workspaces."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue

# --- checkpoints ---------------------------------------------------------------------------------------


class CheckpointColumns(Columns, frozen=True):
    checkpoint_no: int
    id: str
    session_id: str
    turn_id: str | None
    call_id: str | None
    epoch: int
    cause: str
    created_at: int
    before: str
    tree: str
    body: str  # JSON


class CheckpointTree(Columns, frozen=True):
    checkpoint_no: int
    tree: str
    before: str
    id: str


class TurnChanges(Columns, frozen=True):
    turn_id: str
    body: str  # JSON


CHANGES_OF_TURNS: Select[[str], TurnChanges] = Select("changes_of_turns", TurnChanges)
CHECKPOINT_INSERT: SelectValue[[str, int, int | None, str | None, int, str, int, str, str, str], int] = (
    SelectValue("checkpoint_insert")
)
CHECKPOINT: Select[[str], CheckpointColumns] = Select("checkpoint_row", CheckpointColumns)
CHECKPOINT_ID_OF_TREE: SelectValue[[int, str], str] = SelectValue("checkpoint_id_of_tree")
CHECKPOINT_AT_TURN: Select[[int], CheckpointColumns] = Select("checkpoint_at_turn", CheckpointColumns)
CHECKPOINT_AT_START: Select[[int], CheckpointColumns] = Select("checkpoint_at_start", CheckpointColumns)
CHECKPOINT_LAST: Select[[int], CheckpointColumns] = Select("checkpoint_last", CheckpointColumns)
CHECKPOINTS_OF_SESSION: Select[[int, int, int], CheckpointColumns] = Select(
    "checkpoints_of_session", CheckpointColumns
)
CHECKPOINTS_OF_TURN: Select[[int], CheckpointColumns] = Select("checkpoints_of_turn", CheckpointColumns)
CHECKPOINTS_OF_USER: Select[[int, int | None], CheckpointColumns] = Select(
    "checkpoints_of_user", CheckpointColumns
)
CHECKPOINTS_KEPT: Select[[int], CheckpointColumns] = Select("checkpoints_kept", CheckpointColumns)
CHECKPOINT_TREES: Select[[int, int], CheckpointTree] = Select("checkpoint_trees", CheckpointTree)


class CheckpointToCopy(Columns, frozen=True):
    turn_no: int | None
    call_id: str | None
    epoch: int
    cause: str
    created_at: int
    before: str
    tree: str
    body: str  # JSON


class WorkingCopyColumns(Columns, frozen=True):
    wanted: str | None
    present: str | None
    choices: str | None  # JSON
    machine: str | None


class UnsettledColumns(Columns, frozen=True):
    owner: str
    session_id: str
    machine: str | None


CHECKPOINT_LAST_MADE: Select[[int], CheckpointColumns] = Select("checkpoint_last_made", CheckpointColumns)
CHECKPOINT_FIRST_OF_TURN: Select[[int], CheckpointColumns] = Select(
    "checkpoint_first_of_turn", CheckpointColumns
)
CHECKPOINTS_TO_COPY: Select[[int], CheckpointToCopy] = Select("checkpoints_to_copy", CheckpointToCopy)
CHECKPOINT_OF_TREE: SelectValue[[int, str], int | None] = SelectValue("checkpoint_of_tree")
CHECKPOINT_BEFORE: Select[[int, str, str], CheckpointColumns] = Select("checkpoint_before", CheckpointColumns)
WORKING_COPY: Select[[int], WorkingCopyColumns] = Select("working_copy", WorkingCopyColumns)
WORKING_COPY_SETTLE: SelectValue[[int, str, str | None], int] = SelectValue("working_copy_settle")
WORKING_COPIES_UNSETTLED: Select[[], UnsettledColumns] = Select("working_copies_unsettled", UnsettledColumns)
TURN_FILES: SelectValue[[int], str | None] = SelectValue("turn_files")

# --- files ---------------------------------------------------------------------------------------------


class FileColumns(Columns, frozen=True):
    id: str
    owner: str
    name: str
    media_type: str
    size: int
    sha256: str
    created_at: int
    kind: str


class FilePlace(Columns, frozen=True):
    """A file, and the pack that holds its bytes; None if no row says where they are."""

    id: str
    name: str
    damaged_at: int | None
    place: str | None
    path: str | None
    pack_size: int | None


FILE: Select[[str, str], FileColumns] = Select("file_get", FileColumns)
FILES_OF_SESSION: Select[[str, str, str, int], FileColumns] = Select("files_of_session", FileColumns)
FILES_UNUSED: SelectValue[[int, int], str] = SelectValue("files_unused")
FILES_ALL: Select[[], FilePlace] = Select("files_all", FilePlace)
FILES_HASHES: SelectValue[[str, int], str] = SelectValue("files_hashes")
FILES_WITHOUT_BYTES: SelectValue[[], str] = SelectValue("files_without_bytes")

# --- blobs ---------------------------------------------------------------------------------------------


class FoundBlob(Columns, frozen=True):
    sha256: str
    size: int
    touched_at: int


class BlobPlace(Columns, frozen=True):
    size: int
    pack: str
    place: str
    path: str
    start: int
    checksums: bytes | None


class SmallBlob(Columns, frozen=True):
    sha256: str
    size: int
    place: str
    path: str
    start: int


class PackedBlob(Columns, frozen=True):
    sha256: str
    size: int


class PackColumns(Columns, frozen=True):
    id: str
    place: str
    path: str
    size: int


BLOBS_FIND: Select[[str], FoundBlob] = Select("blobs_find", FoundBlob)  # a list in JSON
BLOB_PLACE: Select[[str], BlobPlace] = Select("blob_place", BlobPlace)
BLOBS_PLACES: Select[[str, int], SmallBlob] = Select("blobs_places", SmallBlob)  # a list in JSON
BLOBS_IN_PACK: SelectValue[[str], int] = SelectValue("blobs_in_pack")
BLOBS_OF_PACK: Select[[str], PackedBlob] = Select("blobs_of_pack", PackedBlob)
BLOBS_TO_MARK: SelectValue[[str, int, int], str] = SelectValue("blobs_to_mark")
BLOBS_MARKED: SelectValue[[str, int], str] = SelectValue("blobs_marked")
BLOBS_TO_MOVE: SelectValue[[int], str] = SelectValue("blobs_to_move")
PACKS_TO_DELETE: Select[[int], PackColumns] = Select("packs_to_delete", PackColumns)
PACKS_ALL: Select[[], PackColumns] = Select("packs_all", PackColumns)
BLOB_TOUCHED: SelectValue[[str], int] = SelectValue("blob_touched")
BLOBS_STORED_BY: SelectValue[[str, int, int], str] = SelectValue("blobs_stored_by")
BLOBS_DAMAGED: SelectValue[[int], str] = SelectValue("blobs_damaged")
PACKS_IN: SelectValue[[str], int] = SelectValue("packs_in")
PACK_BYTES_SIZE: SelectValue[[str], int] = SelectValue("pack_bytes_size")
PACK_PIECES: SelectValue[[str, int, int, int, int], bytes] = SelectValue("pack_pieces")
