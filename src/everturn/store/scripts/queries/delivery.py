"""Queries of chats, the inbox, the outbox and the leases of accounts."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue


class ChatColumns(Columns, frozen=True):
    chat_no: int
    chat_id: str
    owner: str
    account: str
    platform: str
    kind: str
    chat: str
    thread: str
    profile: str
    title: str
    session_id: str | None
    last_number: int | None
    created_at: int


class InboxColumns(ChatColumns, frozen=True):
    """``body``: JSON, empty once the row is settled."""

    inbox_no: int
    inbox_id: str
    state: str
    received_at: int
    is_late: int
    body: str
    refusal: str | None  # JSON
    turn_id: str | None


class PrunedColumns(Columns, frozen=True):
    inbox_id: str
    chat_no: int


class DueColumns(ChatColumns, frozen=True):
    outbox_id: str
    in_session: str
    turn_no: int
    turn_id: str
    state: str
    epoch: int
    failure: str | None  # JSON
    live_id: str | None
    is_live_last: int


class UnderwayColumns(ChatColumns, frozen=True):
    in_session: str
    turn_id: str
    first_position: int
    started_at: int | None
    live_state: str | None
    live_id: str | None


class UnseenWords(Columns, frozen=True):
    turn_no: int
    asked_on: str | None


class LivePart(Columns, frozen=True):
    state: str
    external_id: str | None


class AskDueColumns(ChatColumns, frozen=True):
    ask_id: str


class AnswerDueColumns(AskDueColumns, frozen=True):
    outbox_id: str


class OutgoingColumns(ChatColumns, frozen=True):
    part_id: str
    body: str  # JSON
    number: int
    attempts: int
    is_repeat: int
    give_up_at: int
    turn_id: str | None


class PartColumns(Columns, frozen=True):
    id: str
    outbox_id: str
    chat_id: str
    number: int
    state: str
    attempts: int
    is_repeat: int
    turn_id: str | None
    external_id: str | None
    error: str | None
    changed_at: int


class UndecidedColumns(PartColumns, frozen=True):
    body: str


class ReplyPartColumns(Columns, frozen=True):
    """A part of the answer of a turn."""

    turn_id: str
    chat_id: str
    account: str
    platform: str
    title: str
    part_id: str
    state: str
    is_repeat: int
    error: str | None
    changed_at: int


class ReplyOfPart(Columns, frozen=True):
    """The reply that a part belongs to."""

    session_id: str
    owner: str
    turn_id: str
    chat_id: str


class TurnNumbers(Columns, frozen=True):
    turn_no: int
    session_no: int


class DeliveryTotalsColumns(Columns, frozen=True):
    received: int
    waiting: int
    unknown_count: int
    for_people: int
    oldest: int | None


class UnknownPart(Columns, frozen=True):
    part_no: int
    id: str
    is_repeat: int
    attempts: int
    body: str  # JSON
    is_live: int


class LeaseColumns(Columns, frozen=True):
    """``epoch`` below zero: the account was removed."""

    worker: str | None
    epoch: int
    is_alive: int

    @property
    def is_removed(self) -> bool:
        return self.epoch < 0


class OwedReplyColumns(ChatColumns, frozen=True):
    outbox_id: str
    outbox_no: int


class FiguresColumns(Columns, frozen=True):
    received: int
    last_received_at: int | None
    waiting: int
    waiting_since: int | None
    undecided: int


CHAT_AT: Select[[str, str, str], ChatColumns] = Select("chat_at", ChatColumns)
CHAT: Select[[str, str], ChatColumns] = Select("chat_get", ChatColumns)
CHATS: Select[[str], ChatColumns] = Select("chats_list", ChatColumns)
CHATS_SEEN: Select[[str, int], ChatColumns] = Select("chats_seen", ChatColumns)
CHATS_OF_SESSION: SelectValue[[str, str], int] = SelectValue("chats_of_session")
CHATS_OF_ACCOUNT: Select[[str], ChatColumns] = Select("chats_of_account", ChatColumns)

INBOX_FIND: Select[[str, str], InboxColumns] = Select("inbox_find", InboxColumns)
INBOX: Select[[str], InboxColumns] = Select("inbox_get", InboxColumns)
INBOX_FIRST: SelectValue[[int], int] = SelectValue("inbox_first")
INBOX_WAITING: Select[[str, int], InboxColumns] = Select("inbox_waiting", InboxColumns)
INBOX_PRUNE: Select[[int, int], PrunedColumns] = Select("inbox_prune", PrunedColumns)

OUTBOX_PUT: SelectValue[[str, int, str, int | None, int | None, int], int] = SelectValue("outbox_put")
OUTBOX_RECORD: SelectValue[[str, int], int] = SelectValue("outbox_record")
REPLIES_DUE: Select[[str, int], DueColumns] = Select("replies_due", DueColumns)
REPLIES_UNDERWAY: Select[[str, int], UnderwayColumns] = Select("replies_underway", UnderwayColumns)
UNSEEN_WORDS: Select[[int, str], UnseenWords] = Select("unseen_words", UnseenWords)
LIVE_PART: Select[[int, str], LivePart] = Select("live_part", LivePart)
REPLIES_OWED: Select[[str], OwedReplyColumns] = Select("replies_owed", OwedReplyColumns)
ASKS_DUE: Select[[str, int], AskDueColumns] = Select("asks_due", AskDueColumns)
ANSWERS_DUE: Select[[str, int], AnswerDueColumns] = Select("answers_due", AnswerDueColumns)
PARTS_OF_KEY: Select[[int, str], PartColumns] = Select("parts_of_key", PartColumns)
CHATS_WORKING: Select[[str, int], ChatColumns] = Select("chats_working", ChatColumns)
DELIVERY_TOTALS: Select[[], DeliveryTotalsColumns] = Select("delivery_totals", DeliveryTotalsColumns)
TURN_NUMBERS_BY_ID: Select[[str], TurnNumbers] = Select("turn_numbers_by_id", TurnNumbers)
PARTS_CLAIMABLE: SelectValue[[str, int, int], int] = SelectValue("parts_claimable")
PART_OUTGOING: Select[[int], OutgoingColumns] = Select("part_outgoing", OutgoingColumns)
PARTS_SENDING: SelectValue[[str, int], str] = SelectValue("parts_sending")
PARTS_UNKNOWN: Select[[str], UnknownPart] = Select("parts_unknown", UnknownPart)
PART: Select[[str, str], PartColumns] = Select("part_get", PartColumns)
PARTS_OF_TURN: Select[[int], PartColumns] = Select("parts_of_turn", PartColumns)
REPLIES_OF_TURNS: Select[[str], ReplyPartColumns] = Select("replies_of_turns", ReplyPartColumns)
REPLIES_OF_PARTS: Select[[str], ReplyOfPart] = Select("replies_of_parts", ReplyOfPart)
PARTS_EXPIRED: SelectValue[[str, int], str] = SelectValue("parts_expired")
PARTS_FOR_PEOPLE: Select[[str, int], UndecidedColumns] = Select("parts_for_people", UndecidedColumns)

ACCOUNT_FIGURES: Select[[str, int], FiguresColumns] = Select("account_figures", FiguresColumns)
LEASE: Select[[str], LeaseColumns] = Select("lease_get", LeaseColumns)
