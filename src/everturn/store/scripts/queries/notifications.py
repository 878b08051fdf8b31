"""Queries of notifications and of the devices that they go to."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.queries.delivery import ChatColumns
from everturn.store.scripts.script import Select, SelectValue


class DeviceColumns(Columns, frozen=True):
    device_no: int
    device_id: str
    device_owner: str
    device_kind: str
    name: str
    kinds: str  # separated by spaces
    address: str  # JSON
    has_buttons: int
    added_at: int
    sent_at: int | None
    ended_at: int | None
    error: str
    device_chat_no: int
    device_chat: str


class NoteColumns(ChatColumns, frozen=True):
    note_no: int
    note_id: str
    note_kind: str
    cause: str
    words: str
    note_state: str
    noted_at: int
    due_at: int
    outbox_id: str
    outbox_no: int
    in_session: str | None
    session_title: str | None
    turn_no: int | None
    turn_id: str | None
    device_no: int
    device_id: str
    device_owner: str
    device_kind: str
    name: str
    kinds: str
    address: str
    has_buttons: int
    added_at: int
    sent_at: int | None
    ended_at: int | None
    error: str
    device_chat_no: int
    device_chat: str
    is_standing: int


class RunOfTurn(Columns, frozen=True):
    id: str
    settings: str  # JSON


class NotePart(Columns, frozen=True):
    state: str
    attempts: int


DEVICES: Select[[str], DeviceColumns] = Select("devices_list", DeviceColumns)
DEVICE: Select[[str], DeviceColumns] = Select("device_get", DeviceColumns)
DEVICE_MARKED: Select[[str, str], DeviceColumns] = Select("device_marked", DeviceColumns)
DEVICE_OF_CHAT: Select[[str], DeviceColumns] = Select("device_of_chat", DeviceColumns)

RUN_OF_TURN: Select[[int], RunOfTurn] = Select("run_of_turn", RunOfTurn)
NOTE_OWE: SelectValue[[str, int, str, int | None, int | None, int], int] = SelectValue("note_owe")
NOTES_DUE: Select[[int, int], NoteColumns] = Select("notes_due", NoteColumns)
NOTES_OVER: Select[[int], NoteColumns] = Select("notes_over", NoteColumns)
NOTE: Select[[str], NoteColumns] = Select("note_get", NoteColumns)
NOTE_MOVE: SelectValue[[str, str, str], int] = SelectValue("note_move")
NOTE_STATE: SelectValue[[str], str] = SelectValue("note_state")
NOTE_PARTS: Select[[int], NotePart] = Select("note_parts", NotePart)
