"""Turns as events and as the server folds them: the page's reducers must reproduce the same.

    python -m tests.golden.turns        writes the page's fixtures anew

The fixtures hold every kind of event that belongs to a turn, so a new kind needs a turn here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from everturn.domain import events as ev
from everturn.domain.asks import AskTopic, Decision
from everturn.domain.checkpoints import ChangeKind, FileChange, LeftOut
from everturn.domain.fold import fold
from everturn.domain.ids import message_id
from everturn.domain.messages import Call, Message, Outcome, Reasoning, Role, SavedFiles, Summary, Text
from everturn.domain.trees import Reason
from everturn.domain.turns import (
    ClaimReason,
    Failure,
    FinishReason,
    Recovery,
    Turn,
    TurnKind,
    TurnState,
    Usage,
)

FILE = Path(__file__).parents[2] / "frontend/tests/fixtures/turns.json"
START_MS = 1_800_000_000_000
STEP_MS = 250
MODEL = "test:model"
SESSION = "ses_00000000000000000000000000"
# Kinds that belong to no turn.
SESSION_KINDS = frozenset(
    (
        *("session.changed", "files.restored", "reply.sent", "reply.unknown", "snapshot"),
        *("job.started", "job.output", "job.ended", "delegate.started"),
    )
)

_ENDINGS: dict[type, TurnState] = {
    ev.TurnCompleted: TurnState.COMPLETED,
    ev.TurnCancelled: TurnState.CANCELLED,
    ev.TurnFailed: TurnState.FAILED,
    ev.TurnInterrupted: TurnState.INTERRUPTED,
}


class Case(NamedTuple):
    title: str
    payloads: Sequence[ev.Payload]
    kind: TurnKind = TurnKind.MESSAGE


def kinds() -> list[str]:
    """Every kind of event, as domain/events.py has them."""
    return sorted(str(kind.__struct_config__.tag) for kind in get_args(ev.AnyPayload))


def fixtures() -> bytes:
    """The file's content as the present code makes it."""
    turns = [_turn(number, case) for number, case in enumerate(cases(), 1)]
    content = msgspec.json.encode({"kinds": kinds(), "turns": turns})
    return msgspec.json.format(content, indent=1) + b"\n"


# --- parts of turns -----------------------------------------------------------------------------


def begun(text: str = "Please help.") -> list[ev.Payload]:
    return [ev.TurnAccepted(_asked(text)), ev.TurnStarted(1, "worker")]


def said(
    step: int, *texts: str, thought: str = "", finish: FinishReason = FinishReason.STOP
) -> list[ev.Payload]:
    thinking = [ev.ReasoningDelta(step, piece) for piece in thought.split("|") if piece]
    speaking = [ev.TextDelta(step, piece) for piece in texts]
    return [ev.StepStarted(step, MODEL), *thinking, *speaking, ev.StepFinished(step, finish), _usage(step)]


def wished(step: int, *calls: Call) -> list[ev.Payload]:
    return [ev.StepStarted(step, MODEL), ev.StepFinished(step, FinishReason.CALLS, calls), _usage(step)]


def command(call_id: str, text: str) -> Call:
    return Call(call_id, "terminal", msgspec.json.encode({"command": text}).decode())


def ran(call: Call, label: str, *output: str, attempt: int = 1) -> list[ev.Payload]:
    started = ev.ToolStarted(1, call.id, call.name, call.arguments, label=label, attempt=attempt)
    return [started, *(ev.ToolOutput(call.id, piece) for piece in output)]


def finished(call: Call, text: str, outcome: Outcome = Outcome.OK, **more: Any) -> ev.Payload:
    return ev.ToolFinished(call.id, call.name, outcome, text, **more)


def asked_about(call: Call, decision: Decision, arguments: str | None = None) -> list[ev.Payload]:
    requested = ev.ApprovalRequested(
        "ask_1", call.id, call.name, call.arguments, "digest", "it deletes files", label="rm -r old"
    )
    resolved = ev.ApprovalResolved("ask_1", call.id, decision, "user", arguments)
    return [requested, ev.TurnWaiting(("ask_1",)), resolved, _resumed(ClaimReason.ANSWERED)]


def _resumed(reason: ClaimReason, step: int = 0) -> ev.Payload:
    return ev.TurnResumed(2, "other worker", reason, attempt=1, step=step)


def _usage(step: int, *, missed: bool = False) -> ev.Payload:
    usage = Usage(input_tokens=1_000 + step, output_tokens=80, cached_tokens=900, cost_usd=0.002)
    return ev.StepUsage(step, MODEL, usage, missed_cache=missed)


def _asked(text: str) -> Message:
    return Message("msg_asked", "trn_asked", Role.USER, (Text(text),), START_MS)


# --- the turns ----------------------------------------------------------------------------------


def cases() -> list[Case]:
    return [*_answers(), *_calls(), *_decisions(), *_crashes(), *_doubts(), *_endings(), *_saves()]


def _saves() -> list[Case]:
    note = SavedFiles((FileChange("notes.txt", ChangeKind.CHANGED, 12),), 3)
    saved = Message("msg_saved", "trn", Role.USER, (note,), START_MS)
    long = command("c1", "make")
    return [
        Case(
            "an answer after the user saved files",
            [*begun(), ev.MessageAdded(saved), *said(1, "Seen."), ev.TurnCompleted()],
        ),
        Case(
            "an output that could not be kept",
            [
                *begun(),
                *wished(1, long),
                *ran(long, "make"),
                finished(long, "the end", not_kept="The storage is away."),
                *said(2, "It is long."),
                ev.TurnCompleted(),
            ],
        ),
    ]


def _answers() -> list[Case]:
    steering = Message("msg_steer", "trn", Role.USER, (Text("in German"),), START_MS, is_steering=True)
    summary = Message(
        "msg_sum", "trn", Role.SUMMARY, (Summary("A summary.", "msg_9", 12, 4_000, 200),), START_MS
    )
    limit = ev.QuestionAsked("ask_2", "Go on?", ("go on", "stop"), AskTopic.LIMIT)
    return [
        Case("an answer", [*begun(), *said(1, "Hello, ", "you."), ev.TurnCompleted()]),
        Case(
            "a thoughtful answer",
            [*begun(), *said(1, "Yes.", thought="Is it?|It is."), ev.TurnCompleted()],
        ),
        Case(
            "reasoning that the provider wants back",
            [
                *begun(),
                ev.StepStarted(1, MODEL),
                ev.ReasoningDelta(1, "Is it?"),
                ev.TextDelta(1, "Yes."),
                ev.StepFinished(1, FinishReason.STOP, (), (Reasoning("Is it?"),)),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "cut at its length",
            [*begun(), *said(1, "Once upon", finish=FinishReason.LENGTH), ev.TurnCompleted()],
        ),
        Case(
            "a cache that was missed",
            [
                *begun(),
                ev.StepStarted(1, MODEL),
                ev.TextDelta(1, "Yes."),
                ev.StepFinished(1, FinishReason.STOP),
                _usage(1, missed=True),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "progress before the first word",
            [*begun(), ev.Progress("Downloading", 10, 100), *said(1, "Here."), ev.TurnCompleted()],
        ),
        Case(
            "steered",
            [
                *begun(),
                *wished(1, command("c1", "ls")),
                *ran(command("c1", "ls"), "ls"),
                finished(command("c1", "ls"), "a\nb"),
                ev.MessageAdded(steering),
                *said(2, "Zwei Dateien."),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "paused at a limit",
            [
                *begun(),
                *said(1, "So far."),
                limit,
                ev.TurnWaiting(("ask_2",)),
                ev.QuestionAnswered("ask_2", "go on", "user", AskTopic.LIMIT),
                _resumed(ClaimReason.ANSWERED),
                *said(2, "And on."),
                ev.TurnCompleted(),
            ],
        ),
        Case("stopped at a limit", [*begun(), *said(1, "So far."), limit, ev.TurnCancelled("user")]),
        Case(
            "asked about the folder's instructions",
            [
                *begun(),
                ev.QuestionAsked(
                    "ask_3", "Use them?\n\nBe brief.", ("use", "not now"), AskTopic.INSTRUCTIONS
                ),
                ev.TurnWaiting(("ask_3",)),
                ev.QuestionAnswered("ask_3", "use", "user", AskTopic.INSTRUCTIONS),
                _resumed(ClaimReason.ANSWERED),
                *said(1, "Yes."),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "waited for a budget",
            [
                *begun(),
                ev.BudgetReached("bgt_1", "day", "usd", 5_000_000, START_MS, START_MS + 86_400_000),
                ev.QuestionAsked("ask_5", "Today's budget is used up.", ("raise", "stop"), AskTopic.BUDGET),
                ev.TurnWaiting(("ask_5",)),
                ev.QuestionAnswered("ask_5", "resume", "budget", AskTopic.BUDGET),
                _resumed(ClaimReason.ANSWERED),
                *said(1, "Yes."),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "waited for a delegate",
            [
                *begun(),
                *wished(1, Call("c1", "delegate", '{"tasks":[{"instructions":"Look."}]}')),
                ev.ToolStarted(1, "c1", "delegate", '{"tasks":[{"instructions":"Look."}]}', "delegate Look."),
                ev.TurnWaiting(("ask_6",)),
                ev.DelegateEnded(
                    "ses_2", "trn_1", "c1", "completed", "Delegate ses_2 (Look.) is done.\nSeen."
                ),
                _resumed(ClaimReason.ANSWERED, 1),
                finished(Call("c1", "delegate", "{}"), "Delegate ses_2 (Look.) is done.\nSeen."),
                *said(2, "It is done."),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "asked about a call that repeats",
            [
                *begun(),
                *wished(1, command("c1", "ls")),
                *ran(command("c1", "ls"), "ls"),
                finished(command("c1", "ls"), "a"),
                ev.QuestionAsked("ask_4", "Shall it go on?", ("go on", "stop"), AskTopic.REPEAT),
                ev.TurnWaiting(("ask_4",)),
                ev.QuestionAnswered("ask_4", "go on", "user", AskTopic.REPEAT),
                _resumed(ClaimReason.ANSWERED, 1),
                *said(2, "One file."),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "a summary",
            [
                ev.TurnStarted(1, "worker"),
                ev.StepStarted(1, MODEL),
                _usage(1),
                ev.MessageAdded(summary),
                ev.TurnCompleted(),
            ],
            TurnKind.COMPACTION,
        ),
    ]


def _calls() -> list[Case]:
    first, second = command("c1", "make"), Call("c2", "read_file", '{"path":"a.txt"}')
    question = Call("c1", "ask_user", '{"question":"Which?"}')
    asked = ev.QuestionAsked("ask_1", "Which?", ("this", "that"), AskTopic.QUESTION, "c1")
    return [
        Case(
            "two calls, one of which failed",
            [
                *begun(),
                *wished(1, first, second),
                *ran(first, "make", "compiling\n", "failed\n"),
                *ran(second, "a.txt"),
                finished(second, "one\ntwo", display={"kind": "read", "lines": 2}),
                finished(first, "failed", Outcome.ERROR, display={"exit": 2}),
                *said(2, "It failed."),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "a call that changed files",
            [
                *begun(),
                *wished(1, first),
                *ran(first, "make"),
                ev.FilesChanged(
                    "chk_1",
                    "c1",
                    (FileChange("a.out", ChangeKind.ADDED, 120),),
                    1,
                    (LeftOut("node_modules", Reason.DEPENDENCIES),),
                    1,
                ),
                finished(first, "made", checkpoint="chk_1"),
                *said(2, "It is made."),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "a call on another machine, to which the files were brought",
            [
                *begun(),
                *wished(1, first),
                ev.FilesMoved("chk_1", "two", "one", 3, (LeftOut("node_modules", Reason.DEPENDENCIES),), 1),
                *ran(first, "make"),
                finished(first, "made"),
                *said(2, "It is made."),
                ev.TurnCompleted(),
            ],
        ),
        Case(
            "a question to the user",
            [
                *begun(),
                *wished(1, question),
                asked,
                ev.TurnWaiting(("ask_1",)),
                ev.QuestionAnswered("ask_1", "that", "user", AskTopic.QUESTION, "c1"),
                _resumed(ClaimReason.ANSWERED),
                *ran(question, "Which?"),
                finished(question, "that"),
                *said(2, "That one, then."),
                ev.TurnCompleted(),
            ],
        ),
        Case("waits for an answer", [*begun(), *wished(1, question), asked, ev.TurnWaiting(("ask_1",))]),
    ]


def _decisions() -> list[Case]:
    call = command("c1", "rm -r old")
    changed = command("c1", "rm -r older")
    denied = finished(call, "Denied.", Outcome.DENIED)
    start = [*begun(), *wished(1, call)]
    end = [*said(2, "Done."), ev.TurnCompleted()]
    return [
        Case(
            "allowed once",
            [*start, *asked_about(call, Decision.ONCE), *ran(call, "rm -r old"), finished(call, ""), *end],
        ),
        Case(
            "allowed as changed",
            [
                *start,
                *asked_about(call, Decision.ONCE, changed.arguments),
                *ran(changed, "rm -r older"),
                finished(changed, ""),
                *end,
            ],
        ),
        Case("denied", [*start, *asked_about(call, Decision.DENY), denied, *end]),
        Case("not allowed in time", [*start, *asked_about(call, Decision.EXPIRED), denied, *end]),
        Case("waits for approval", [*start, *asked_about(call, Decision.ONCE)[:2]]),
    ]


def _crashes() -> list[Case]:
    cut = [*begun(), ev.StepStarted(1, MODEL), ev.TextDelta(1, "Once upon")]
    dropped = ev.StepAbandoned(1, "dropped", "connection lost", continues=True, model=MODEL)
    limited = ev.StepAbandoned(1, "rate_limited", "429", retry_in_ms=2_000, model=MODEL)
    again = ev.StepStarted(1, MODEL, attempt=2)
    ending = [
        ev.TextDelta(1, " a time."),
        ev.StepFinished(1, FinishReason.STOP),
        _usage(1),
        ev.TurnCompleted(),
    ]
    return [
        Case(
            "goes on after a crash",
            [
                *cut,
                _resumed(ClaimReason.CRASH),
                ev.StepAbandoned(1, "crash", continues=True),
                again,
                *ending,
            ],
        ),
        Case(
            "answers again after a crash",
            [
                *cut,
                _resumed(ClaimReason.CRASH),
                ev.StepAbandoned(1, "crash"),
                again,
                *ending,
            ],
        ),
        Case("goes on after a dropped connection", [*cut, dropped, again, *ending]),
        Case("tries again after a refusal", [*cut, limited, again, *ending]),
        Case("waits to try again", [*cut, limited]),
        Case(
            "handed over between two steps",
            [
                *begun(),
                *wished(1, command("c1", "ls")),
                *ran(command("c1", "ls"), "ls"),
                finished(command("c1", "ls"), "a"),
                _resumed(ClaimReason.HANDED_OVER, 1),
                *said(2, "One file."),
                ev.TurnCompleted(),
            ],
        ),
    ]


def _doubts() -> list[Case]:
    call = command("c1", "make")
    doubt = ev.QuestionAsked(
        "ask_1", "What became of it?", ("run again", "take it as done"), AskTopic.DOUBT, "c1"
    )
    start = [
        *begun(),
        *wished(1, call),
        *ran(call, "make", "compiling\n"),
        _resumed(ClaimReason.CRASH, 1),
        doubt,
        ev.TurnWaiting(("ask_1",)),
    ]

    def answered(answer: str) -> list[ev.Payload]:
        return [
            ev.QuestionAnswered("ask_1", answer, "user", AskTopic.DOUBT, "c1"),
            _resumed(ClaimReason.ANSWERED, 1),
        ]

    end = [*said(2, "Made."), ev.TurnCompleted()]
    return [
        Case("in doubt", start),
        Case(
            "run again after a doubt",
            [
                *start,
                *answered("run again"),
                *ran(call, "make", "compiled\n", attempt=2),
                finished(call, "ok"),
                *end,
            ],
        ),
        Case(
            "taken as done after a doubt",
            [*start, *answered("take it as done"), finished(call, "Taken as done."), *end],
        ),
    ]


def _endings() -> list[Case]:
    call = command("c1", "make")
    working = [*begun(), *wished(1, call, command("c2", "ls")), *ran(call, "make", "compiling\n")]
    failure = Failure("provider_error", "The model returned an error (500).", "Try again.")
    speaking = [*begun(), ev.StepStarted(1, MODEL), ev.TextDelta(1, "Once")]
    return [
        Case("queued", begun()[:1]),
        Case("running", speaking),
        Case("stopped while it spoke", [*speaking, ev.TurnCancelled("user")]),
        Case("stopped while a command ran", [*working, ev.TurnCancelled("user")]),
        Case("failed", [*begun(), ev.StepStarted(1, MODEL), ev.TurnFailed(failure)]),
        Case("interrupted", [*working, ev.TurnInterrupted(failure)]),
        Case("interrupted, and output may still come", [*speaking, ev.TurnInterrupted(failure, "pending")]),
    ]


# --- as the server has them ---------------------------------------------------------------------


def _turn(number: int, case: Case) -> dict[str, Any]:
    turn_id = f"trn_{number:026d}"
    events = [
        ev.Event(
            SESSION,
            position,
            turn_id,
            ev.kind_of(payload),
            START_MS + position * STEP_MS,
            ev.encode(payload),
            1,
            position,
        )
        for position, payload in enumerate(case.payloads, 1)
    ]
    row = _row(turn_id, case, events)
    is_ended = row.ended_at is not None
    folded = fold(turn_id, events, is_ended=is_ended)
    asked = msgspec.structs.replace(_asked("Please help."), id=message_id(turn_id, 0), turn_id=turn_id)
    user = [asked] if case.kind is TurnKind.MESSAGE else []
    return {
        "title": case.title,
        "row": msgspec.structs.replace(row, usage=folded.usage, timeline=folded.timeline),
        "messages": [*user, *(folded.messages if is_ended else ())],
        "events": [
            {
                "session_id": SESSION,
                "position": event.position,
                "turn_id": turn_id,
                "at": event.at,
                "event": msgspec.Raw(event.data),
            }
            for event in events
        ],
    }


def _row(turn_id: str, case: Case, events: Sequence[ev.Event]) -> Turn:
    last = case.payloads[-1]
    ending = _ENDINGS.get(type(last))
    started = next((event.at for event in events if event.kind == "turn.started"), None)
    return Turn(
        id=turn_id,
        session_id=SESSION,
        owner="local",
        state=ending or _state(case.payloads),
        epoch=1,
        created_at=START_MS,
        kind=case.kind,
        text="Please help.",
        started_at=started,
        ended_at=events[-1].at if ending else None,
        failure=last.failure if isinstance(last, (ev.TurnFailed, ev.TurnInterrupted)) else None,
        recovery=Recovery(last.recovery) if isinstance(last, ev.TurnInterrupted) else Recovery.NONE,
    )


def _state(payloads: Sequence[ev.Payload]) -> TurnState:
    if isinstance(payloads[-1], ev.TurnWaiting):
        return TurnState.WAITING
    return TurnState.QUEUED if len(payloads) == 1 else TurnState.RUNNING


if __name__ == "__main__":
    FILE.write_bytes(fixtures())
