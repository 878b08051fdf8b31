"""The states of a turn and the transitions between them. The database schema repeats this table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Self

import msgspec

from everturn.domain.checkpoints import TurnFiles
from everturn.domain.errors import EverturnError, Remedy
from everturn.domain.parameters import Parameters
from everturn.domain.replies import ReplyDelivery
from everturn.domain.words import Words


class TurnState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


_S = TurnState

MOVES: Mapping[TurnState, frozenset[TurnState]] = MappingProxyType(
    {
        _S.QUEUED: frozenset({_S.RUNNING, _S.CANCELLED, _S.FAILED}),
        _S.RUNNING: frozenset({_S.WAITING, _S.COMPLETED, _S.CANCELLED, _S.FAILED, _S.INTERRUPTED}),
        _S.WAITING: frozenset({_S.RUNNING, _S.CANCELLED, _S.FAILED, _S.INTERRUPTED}),
        _S.INTERRUPTED: frozenset({_S.RUNNING}),
        _S.COMPLETED: frozenset(),
        _S.CANCELLED: frozenset(),
        _S.FAILED: frozenset(),
    }
)

ACTIVE = frozenset({_S.RUNNING, _S.WAITING})
ENDED = frozenset({_S.COMPLETED, _S.CANCELLED, _S.FAILED, _S.INTERRUPTED})


class TurnKind(Words):
    """What a turn does. A worker never claims one of a kind that it does not know (G04)."""

    MESSAGE = "message"
    COMPACTION = "compaction"


class WriterPosition(msgspec.Struct, frozen=True):
    """Where the writer of a turn is: the last event that it numbered, in which epoch."""

    turn_id: str
    epoch: int
    number: int


class ClaimReason(Words):
    """Why a turn can be claimed."""

    NEW = "new"
    CRASH = "crash"  # its worker died
    HANDED_OVER = "handed_over"  # its worker stopped and released it
    ANSWERED = "answered"  # its asks were answered
    MANUAL = "manual"  # the user pressed Resume


class FinishReason(Words):
    """Why a model call ended."""

    STOP = "stop"
    CALLS = "calls"  # the model wants tools to run
    LENGTH = "length"  # the output limit was reached
    FILTERED = "filtered"  # the provider withheld the answer


class BarKind(Words):
    """What a row of the timeline shows."""

    MODEL = "model"
    TOOL = "tool"
    WAIT = "wait"  # for the user
    DOWN = "down"  # no worker had the turn


class BarState(Words):
    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"


class Recovery(StrEnum):
    """What is known about the output of an interrupted turn."""

    NONE = "none"  # not interrupted, or nothing to say
    PENDING = "pending"  # more output may still arrive
    RECOVERED = "recovered"  # output arrived late and is in its place
    FINAL = "final"  # nothing more will come


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a turn failed or was interrupted, in words a user can act on."""

    code: str
    message: str
    hint: str = ""
    remedy: Remedy | None = None

    @classmethod
    def from_error(cls, error: EverturnError) -> Self:
        return cls(error.code, error.message, error.hint, error.remedy)


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and money. ``None`` means unknown, which is not zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    saved_usd: float | None = None  # by the prompt cache: what it would have cost without, less its cost

    def plus(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cost_usd=_sum_money(self.cost_usd, other.cost_usd),
            saved_usd=_sum_money(self.saved_usd, other.saved_usd),
        )


def _sum_money(left: float | None, right: float | None) -> float | None:
    return None if left is None and right is None else (left or 0.0) + (right or 0.0)


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None and right is None else (left or 0) + (right or 0)


class Bar(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a turn's timeline: a model call, a tool, a wait, or the server being down."""

    kind: BarKind
    label: str
    start_at: int
    end_at: int | None = None
    state: BarState = BarState.DONE
    step: int | None = None
    call_id: str | None = None
    usage: Usage | None = None
    first_token_at: int | None = None
    thought_until: int | None = None  # the last sign of thinking, where the model thought
    missed_cache: bool = False  # its prefix should have been cached and was not
    finish: str = ""  # of a model call that ended before it was done: length | filtered
    question: str = ""  # its first line, of a wait that belongs to no call; a call's own wait has none
    answer: str = ""  # what the user answered


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user message and everything that the agent does about it."""

    id: str
    session_id: str
    owner: str
    state: TurnState
    epoch: int
    created_at: int
    kind: TurnKind = TurnKind.MESSAGE
    parent_id: str | None = None
    text: str = ""
    model: str | None = None
    profile: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    attempts: int = 0
    is_ready: bool = False  # waiting or released, and claimable now
    failure: Failure | None = None
    recovery: Recovery = Recovery.NONE
    recovered_at: int | None = None
    usage: Usage = Usage()
    timeline: tuple[Bar, ...] = ()
    sibling: int = 1  # "2 of 3": this turn's place among those with the same parent
    siblings: int = 1
    sibling_ids: tuple[str, ...] = ()  # all of them, in order, where there are several
    private_note: str = ""  # set by the engine, e.g. the focus of a compaction
    first_position: int = 0  # of its first event: follow from one before to see all of it
    files: TurnFiles | None = None  # what it changed in the workspace, on a page of messages
    replies: tuple[ReplyDelivery, ...] = ()  # where its answer was delivered, on a page of messages
    parameters: Parameters | None = None  # as they were when it was accepted; the session's are included


class Completed(msgspec.Struct, frozen=True):
    """A turn that has just completed, and the transcript's version before and after its messages were added.

    A cached history that was at ``version_before`` is at ``version_after`` once these messages are added to
    it. If it was at another version, another process has changed the transcript.
    """

    turn: Turn
    version_before: int
    version_after: int
