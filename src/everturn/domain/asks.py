"""Approvals and questions: what is asked about, and what may be answered.

Each word is stored and sent as its value.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from everturn.domain.checkpoints import FilesInDoubt
from everturn.domain.words import Words

DECLINE = "decline"  # offered where another program asks, which then gets no answer
EXPIRED = "expired"  # the answer of an ask that was not answered in time


class AskTopic(Words):
    """What an ask is about."""

    APPROVAL = "approval"  # may this tool call run?
    QUESTION = "question"  # the model asks the user
    DOUBT = "doubt"  # a call started, and its outcome is unknown
    LIMIT = "limit"  # the turn has reached a limit
    REPEAT = "repeat"  # the same call gave the same result several times
    INSTRUCTIONS = "instructions"  # may text from outside steer the agent?
    BUDGET = "budget"  # a budget is used up
    SIGN_IN = "sign_in"  # a server that a call needs wants the user to sign in
    DELEGATE = "delegate"  # the turn waits for a delegate; no person is asked


class Decision(Words):
    """The answer to an approval."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    TRUST = "trust"  # allow what the sandbox contains, for the rest of the session
    DENY = "deny"
    EXPIRED = EXPIRED

    @property
    def is_lasting(self) -> bool:
        """True if it also covers later calls, so that the policy has to remember it."""
        return self in (Decision.SESSION, Decision.ALWAYS, Decision.TRUST)


class LimitAnswer(Words):
    """The answer to LIMIT and REPEAT."""

    CONTINUE = "continue"
    STOP = "stop"


class BudgetAnswer(Words):
    """The answer to BUDGET. Without one the turn waits until the budget has room again."""

    RAISE = "raise"  # allow what the ask offers on top, for the budget's present period
    STOP = "stop"
    RESUME = "resume"  # given by the server: the budget was raised or removed, or its period turned over


class DoubtAnswer(Words):
    """The answer to DOUBT."""

    CHECK = "check"  # keep the files, tell the model that the outcome is unknown
    RUN_AGAIN = "run again"
    TAKE_AS_DONE = "take it as done"
    GO_BACK_AND_RUN = "go back and run again"  # restore the files first
    NOT_RUN = "treat it as not run"  # restore the files, and do not repeat the call


def doubt_answers(files: FilesInDoubt | None, *, is_ours: bool) -> tuple[DoubtAnswer, ...]:
    """What is offered. Files can be restored if they were recorded and the folder is ours."""
    answers = (DoubtAnswer.CHECK, DoubtAnswer.RUN_AGAIN, DoubtAnswer.TAKE_AS_DONE)
    if files is None or not is_ours:
        return answers
    if not files.changes_total:
        return (*answers, DoubtAnswer.NOT_RUN)
    return (*answers, DoubtAnswer.GO_BACK_AND_RUN, DoubtAnswer.NOT_RUN)


class InstructionsAnswer(Words):
    """The answer to INSTRUCTIONS."""

    USE = "use them"
    LEAVE_OUT = "leave them out"
    NOT_NOW = "not now"  # for this turn; the next one asks again


class SignInAnswer(Words):
    """The answer to SIGN_IN. A finished sign-in gives the first one by itself."""

    DONE = "signed in"
    SKIP = "go on without it"


class AskBudget(msgspec.Struct, frozen=True):
    """The budget that is used up. ``needed``: the smallest amount with which the turn can go on. ``offered``:
    what RAISE allows on top; None: the budget's amount, in asks of earlier versions."""

    budget_id: str
    needed: int
    offered: int | None = None


_CHAT = "chat:"


def by_chat(platform: str) -> str:
    """Who answered, if it was done in a chat of this platform."""
    return _CHAT + platform


def platform_of(by: str) -> str:
    """The platform of the chat in which it was answered; empty if it was not in a chat."""
    return by.removeprefix(_CHAT) if by.startswith(_CHAT) else ""


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """An open or answered approval or question."""

    id: str
    session_id: str
    turn_id: str
    topic: AskTopic
    created_at: int
    call_id: str | None = None
    text: str = ""
    choices: tuple[str, ...] = ()
    name: str = ""
    arguments: str = ""
    digest: str = ""
    label: str = ""
    answer: str | None = None
    by: str | None = None
    answered_at: int | None = None
    expires_at: int | None = None
    title: str = ""  # of the session, for lists
    edited: str | None = None  # the user's arguments, which replace those of the call
    files: FilesInDoubt | None = None  # of DOUBT; None: they were not recorded
    budget: AskBudget | None = None  # of BUDGET
    root_session: str | None = None  # of a delegate's ask: the session in which its user sees it


class Asks(Protocol):
    async def open(self, owner: str, session_id: str | None = None) -> list[Ask]: ...

    async def list_answered(self, owner: str, *, since_ms: int, limit: int) -> list[Ask]:
        """The latest first, however they were answered, including those closed with their turn."""
        ...

    async def get(self, owner: str, ask_id: str) -> Ask: ...

    async def answer(
        self, owner: str, ask_id: str, answer: str, *, by: str, arguments: str | None = None
    ) -> Ask:
        """Store the answer with its event. The turn becomes claimable when none of its asks is open.

        Repeating the same answer changes nothing; a different answer is refused. ``arguments`` replace those
        of the approved call, for this one call."""
        ...

    async def resume(self, owner: str, ask_id: str) -> bool:
        """Let a turn go on that waits because of a budget. False if it does not wait any more."""
        ...

    async def expire(self, now_ms: int) -> int: ...


async def open_sign_ins(asks: Asks, owner: str, server: str) -> list[Ask]:
    """Return the open asks that wait until the user signs in to this MCP server."""
    return [ask for ask in await asks.open(owner) if ask.topic is AskTopic.SIGN_IN and ask.label == server]
