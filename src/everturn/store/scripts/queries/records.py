"""Queries of records and of sealed secrets."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue

# --- records -------------------------------------------------------------------------------------------


class RecordColumns(Columns, frozen=True):
    name: str
    value: str  # JSON


class OwnedRecordColumns(Columns, frozen=True):
    owner: str
    name: str
    value: str  # JSON


RECORD: SelectValue[[str, str, str], str] = SelectValue("record_get")
RECORDS: Select[[str, str], RecordColumns] = Select("records_list", RecordColumns)
RECORDS_OF_KIND: Select[[str, str, str, int], OwnedRecordColumns] = Select(
    "records_of_kind", OwnedRecordColumns
)

# --- secrets (PostgreSQL) ------------------------------------------------------------------------------


class SealedColumns(Columns, frozen=True):
    name: str
    key_id: str
    nonce: bytes
    sealed: bytes


class HolderColumns(Columns, frozen=True):
    """``key_ids``: separated by spaces."""

    id: str
    machine: str
    key_ids: str


SECRETS_ALL: Select[[], SealedColumns] = Select("secrets_all", SealedColumns)
SECRET_HOLDERS: Select[[int], HolderColumns] = Select("secret_holders", HolderColumns)
