"""Queries of delegates."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue


class DelegateColumns(Columns, frozen=True):
    """The columns of its turn and session are None if it was deleted."""

    delegate_no: int
    session_id: str
    turn_id: str
    turn_no: int
    owner: str
    parent_session: str
    parent_no: int
    parent_turn: str
    call_id: str
    ordinal: int
    root_no: int
    root_id: str
    root_turn_no: int
    name: str
    depth: int
    tools: str | None  # JSON
    base: str
    is_waited: int
    is_tainted: int
    ask_id: str | None
    created_at: int
    stop_asked_at: int | None
    ended_at: int | None
    result: str | None  # JSON
    given_at: int | None
    applied_at: int | None
    refused_at: int | None
    parent_deleted_at: int | None
    state: str | None
    started_at: int | None
    turn_ended_at: int | None
    model: str | None
    profile: str | None
    usage: str | None  # JSON
    preview: str | None
    asks: int


class RightsColumns(Columns, frozen=True):
    depth: int
    tools: str | None  # JSON
    root_no: int
    root_id: str
    root_turn_no: int


class DelegateNameColumns(Columns, frozen=True):
    owner: str
    session_id: str
    turn_id: str


DELEGATE: Select[[str], DelegateColumns] = Select("delegate_get", DelegateColumns)
DELEGATE_OF_TURN: Select[[int], DelegateColumns] = Select("delegate_of_turn", DelegateColumns)
DELEGATES_OF_TURN: Select[[str], DelegateColumns] = Select("delegates_of_turn", DelegateColumns)
DELEGATES_OF_CALL: Select[[str, str], DelegateColumns] = Select("delegates_of_call", DelegateColumns)
DELEGATES_OF_SESSION: Select[[int], DelegateColumns] = Select("delegates_of_session", DelegateColumns)
DELEGATE_RIGHTS: Select[[str], RightsColumns] = Select("delegate_rights", RightsColumns)
DELEGATES_AT_WORK: SelectValue[[int], int] = SelectValue("delegates_at_work")
DELEGATES_TO_STOP: Select[[int], DelegateNameColumns] = Select("delegates_to_stop", DelegateNameColumns)
DELEGATES_TO_GIVE: SelectValue[[int], str] = SelectValue("delegates_to_give")
DELEGATES_ORPHANED: Select[[int], DelegateNameColumns] = Select("delegates_orphaned", DelegateNameColumns)
RUN_BEGAN: SelectValue[[int], int] = SelectValue("run_began")
