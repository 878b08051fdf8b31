"""The events of the journal: one struct for each ``kind``.

The JSON of a payload is what is stored and what goes over the wire, byte for byte. A stored kind is
never changed; fields are only added, with defaults. A journal may hold kinds and fields of a newer version:
they are stored, sent and copied as they are, and whatever interprets events passes over them (G04).
"""

from __future__ import annotations

from typing import Union, get_args

import msgspec

from everturn.domain.asks import AskTopic, Decision
from everturn.domain.checkpoints import FileChange, FilesInDoubt, LeftOut
from everturn.domain.job_states import JobState, WhenEnded
from everturn.domain.json_types import Json
from everturn.domain.messages import Call, Message, Outcome, Reasoning
from everturn.domain.parameters import Parameters
from everturn.domain.replies import ReplyDelivery
from everturn.domain.turns import ClaimReason, Failure, FinishReason, Usage
from everturn.domain.working_copies import KeptFile


class Payload(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """Base of the payloads."""


class TurnAccepted(Payload, frozen=True, tag="turn.accepted"):
    """The user's message is durable. ``place`` counts the turns queued before it."""

    message: Message
    place: int = 0
    parameters: Parameters | None = None  # its own and its session's


class TurnStarted(Payload, frozen=True, tag="turn.started"):
    epoch: int
    worker: str


class StepStarted(Payload, frozen=True, tag="step.started"):
    """A model call begins. ``step`` counts model calls of the turn from 1. ``parameters``: of the call."""

    step: int
    model: str
    attempt: int = 1
    parameters: Parameters | None = None


class TextDelta(Payload, frozen=True, tag="text.delta"):
    step: int
    text: str


class ReasoningDelta(Payload, frozen=True, tag="reasoning.delta"):
    step: int
    text: str


class StepFinished(Payload, frozen=True, tag="step.finished"):
    """A model call ended, with these tool calls. A resumed turn continues from here."""

    step: int
    finish: FinishReason
    calls: tuple[Call, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()  # blocks with what the provider wants back


class StepAbandoned(Payload, frozen=True, tag="step.abandoned"):
    """A model call was cut off. Its text is kept; the next call continues it or starts over."""

    step: int
    reason: str  # crash | cut | rate_limited | overloaded | timeout | dropped | context | ...
    message: str = ""
    continues: bool = False
    retry_in_ms: int | None = None
    model: str = ""


class StepUsage(Payload, frozen=True, tag="usage"):
    step: int
    model: str
    usage: Usage
    missed_cache: bool = False  # the prefix should have been cached and was not


class Progress(Payload, frozen=True, tag="progress"):
    """Something that takes long is under way and is neither a model call nor a tool, e.g. a download."""

    label: str
    done: int = 0
    total: int | None = None


class ToolStarted(Payload, frozen=True, tag="tool.started"):
    step: int
    call_id: str
    name: str
    arguments: str
    label: str = ""  # one line for people: the command, the path
    attempt: int = 1


class ToolOutput(Payload, frozen=True, tag="tool.output"):
    call_id: str
    text: str


class ToolFinished(Payload, frozen=True, tag="tool.finished"):
    call_id: str
    name: str
    outcome: Outcome
    text: str
    artifact: str | None = None
    display: Json = None
    is_untrusted: bool = False
    checkpoint: str | None = None  # what the workspace held afterwards, if the call changed it
    not_kept: str = ""  # why the full output could not be stored


class FilesChanged(Payload, frozen=True, tag="files.changed"):
    """The workspace has changed, and a checkpoint holds it. ``call_id`` None: it was found changed before the
    turn's first call. ``changes`` and ``left_out`` list the first ones; the totals count all."""

    checkpoint: str
    call_id: str | None = None
    changes: tuple[FileChange, ...] = ()
    changes_total: int = 0
    left_out: tuple[LeftOut, ...] = ()
    left_out_total: int = 0


class FilesRestored(Payload, frozen=True, tag="files.restored"):
    """The folder follows the conversation to ``at``: a turn, or ``start``. The event is of no turn.
    ``changes`` lists the first ones; ``kept`` is what was not touched."""

    at: str
    checkpoint: str | None = None
    changes: tuple[FileChange, ...] = ()
    changes_total: int = 0
    kept: tuple[KeptFile, ...] = ()


class FilesMoved(Payload, frozen=True, tag="files.moved"):
    """The turn continues on another machine, and the workspace was restored there from ``checkpoint``.
    ``left_out``: what checkpoints do not hold, and may be missing there. Machines are named for people;
    ``former_id`` tells one from another. ``is_aside``: what lay in the folder and was not recorded yet was
    stored first."""

    checkpoint: str
    machine: str
    former_machine: str
    files: int = 0
    left_out: tuple[LeftOut, ...] = ()
    left_out_total: int = 0
    former_id: str = ""
    is_aside: bool = False


class ApprovalRequested(Payload, frozen=True, tag="approval.requested"):
    """An approval holds for one call, its id and the digest of its arguments, under these ``terms``: where it
    would run, and what it would install."""

    ask_id: str
    call_id: str
    name: str
    arguments: str
    digest: str
    reason: str
    label: str = ""
    options: tuple[Decision, ...] = (Decision.ONCE, Decision.SESSION, Decision.ALWAYS, Decision.DENY)
    terms: tuple[str, ...] = ()


class ApprovalResolved(Payload, frozen=True, tag="approval.resolved"):
    """``arguments``: those that the user put in place of the asked ones; the call runs with them."""

    ask_id: str
    call_id: str
    decision: Decision
    by: str
    arguments: str | None = None


class QuestionAsked(Payload, frozen=True, tag="question.asked"):
    """``files``: of a call in doubt, if its workspace is recorded."""

    ask_id: str
    text: str
    choices: tuple[str, ...] = ()
    topic: AskTopic = AskTopic.QUESTION
    call_id: str | None = None
    files: FilesInDoubt | None = None


class BudgetReached(Payload, frozen=True, tag="budget.reached"):
    """The turn waits: its next model call could cost more than a budget has left. ``amount``: of the budget,
    in millionths of a dollar or in tokens. ``until``: when its period turns over by itself."""

    budget_id: str
    scope: str
    unit: str
    amount: int
    period_start: int
    until: int | None = None
    subject: str = ""


class QuestionAnswered(Payload, frozen=True, tag="question.answered"):
    ask_id: str
    answer: str
    by: str
    # A factory, so that the topic is also written where it is the default: readers may rely on it.
    topic: AskTopic = msgspec.field(default_factory=lambda: AskTopic.QUESTION)
    call_id: str | None = None


class TurnWaiting(Payload, frozen=True, tag="turn.waiting"):
    asks: tuple[str, ...]
    worked_ms: int | None = None  # since it was claimed, by the monotonic clock; None: an older release


class TurnResumed(Payload, frozen=True, tag="turn.resumed"):
    epoch: int
    worker: str
    reason: ClaimReason
    attempt: int = 0
    stopped_at: int | None = None  # the last sign of life of the worker before
    step: int = 0  # the last finished step


class TurnCompleted(Payload, frozen=True, tag="turn.completed"):
    usage: Usage = Usage()
    version: int = 0


class TurnCancelled(Payload, frozen=True, tag="turn.cancelled"):
    by: str = ""
    version: int = 0


class TurnFailed(Payload, frozen=True, tag="turn.failed"):
    failure: Failure
    version: int = 0


class TurnInterrupted(Payload, frozen=True, tag="turn.interrupted"):
    failure: Failure
    recovery: str = "final"
    version: int = 0


class MessageAdded(Payload, frozen=True, tag="message.added"):
    """A message that entered the turn while it ran: steering."""

    message: Message


class JobStarted(Payload, frozen=True, tag="job.started"):
    """A command runs in the background. The events of jobs belong to no turn: a job outlives its own."""

    job_id: str
    call_id: str
    command: str
    when_ended: WhenEnded


class JobOutput(Payload, frozen=True, tag="job.output"):
    """``start``: the place of the text in the whole output, in bytes. Only the beginning is sent this way."""

    job_id: str
    start: int
    text: str


class JobEnded(Payload, frozen=True, tag="job.ended"):
    job_id: str
    state: JobState
    exit_code: int | None = None
    detail: str = ""
    output_bytes: int = 0


class DelegateStarted(Payload, frozen=True, tag="delegate.started"):
    """A delegate works for the turn ``turn_id``. The event is of no turn, as those of jobs are."""

    delegate_id: str
    turn_id: str
    call_id: str
    name: str
    is_waited: bool = True


class DelegateEnded(Payload, frozen=True, tag="delegate.ended"):
    """A delegate's result is with its parent. If the parent's turn waits for it, the event is of that turn
    and holds the ``text``; otherwise it is of no turn."""

    delegate_id: str
    turn_id: str
    call_id: str
    state: str
    text: str = ""
    usage: Usage = Usage()
    is_untrusted: bool = False


class SessionChanged(Payload, frozen=True, tag="session.changed"):
    """The transcript or the settings changed; ``what`` says how, ``head`` where it now ends."""

    version: int
    what: str  # settings | undo | redo | clear | queue | recovered | title | deleted
    head: str | None = None


class ReplySent(Payload, frozen=True, tag="reply.sent"):
    """A chat has the whole answer of a turn. The event is of no turn: a turn's events end with its end."""

    turn_id: str
    reply: ReplyDelivery


class ReplyUnknown(Payload, frozen=True, tag="reply.unknown"):
    """A chat may not have the whole answer of a turn, and a person decides whether it is sent again."""

    turn_id: str
    reply: ReplyDelivery


class Snapshot(Payload, frozen=True, tag="snapshot"):
    """Older events were pruned: read the messages again, then follow from ``position``."""

    position: int
    version: int


AnyPayload = Union[
    TurnAccepted,
    TurnStarted,
    StepStarted,
    TextDelta,
    ReasoningDelta,
    StepFinished,
    StepAbandoned,
    StepUsage,
    Progress,
    ToolStarted,
    ToolOutput,
    ToolFinished,
    FilesChanged,
    FilesRestored,
    FilesMoved,
    ApprovalRequested,
    ApprovalResolved,
    QuestionAsked,
    BudgetReached,
    QuestionAnswered,
    TurnWaiting,
    TurnResumed,
    TurnCompleted,
    TurnCancelled,
    TurnFailed,
    TurnInterrupted,
    MessageAdded,
    JobStarted,
    JobOutput,
    JobEnded,
    DelegateStarted,
    DelegateEnded,
    SessionChanged,
    ReplySent,
    ReplyUnknown,
    Snapshot,
]


KINDS: frozenset[str] = frozenset(str(kind.__struct_config__.tag) for kind in get_args(AnyPayload))


class Unknown(msgspec.Struct, frozen=True):
    """A payload that this version cannot read: its kind is newer, or a value in it is."""

    data: bytes


class Event(msgspec.Struct, frozen=True):
    """One durable event. ``data`` is the payload's JSON as stored and sent.

    ``position`` orders a session's events as readers see them; (epoch, number) orders a turn's events
    as they happened, which differs only for those delivered late.
    """

    session_id: str
    position: int
    turn_id: str | None
    kind: str
    at: int
    data: bytes
    epoch: int = 0
    number: int = 0
    is_late: bool = False

    @property
    def payload(self) -> AnyPayload | Unknown:
        return decode(self.data)


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyPayload] = msgspec.json.Decoder(AnyPayload)


def encode(payload: Payload) -> bytes:
    return _encoder.encode(payload)


def decode(data: bytes) -> AnyPayload | Unknown:
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        return Unknown(data)


def kind_of(payload: Payload) -> str:
    return str(payload.__struct_config__.tag)
