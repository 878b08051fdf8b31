"""Delegates: sessions that work on a part of another session's turn (E09)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from everturn.domain.checkpoints import TurnFiles
from everturn.domain.turns import Turn, TurnState, Usage

REPORT_CHARS_MAX = 24_000  # of a delegate's answer, as its parent gets it
NAME_CHARS_MAX = 80


class DelegateTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one delegate is asked to do. ``tools``: the tools it may use; None: those of its parent.
    ``has_files``: it works in a copy of the parent's files; otherwise it begins with an empty folder.
    ``paths``: patterns of the files that it gets; empty: all. ``tree``: what they name, once it is stored."""

    text: str
    name: str = ""
    profile: str | None = None
    model: str | None = None
    tools: tuple[str, ...] | None = None
    has_files: bool = True
    budget_tokens: int | None = None
    budget_usd: float | None = None
    paths: tuple[str, ...] = ()
    tree: str = ""


class DelegateBounds(msgspec.Struct, frozen=True):
    """``depth_max``: how far delegates may delegate. ``at_once_max``: how many may work for one session at
    once, including their own delegates."""

    depth_max: int
    at_once_max: int


class NewDelegates(msgspec.Struct, frozen=True):
    """The delegates that one tool call asks for. ``is_tainted``: text from outside was in its context."""

    turn_id: str
    call_id: str
    tasks: tuple[DelegateTask, ...]
    is_waited: bool
    is_tainted: bool
    bounds: DelegateBounds


class DelegateResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a delegate's turn ended, stored by the transaction that ended it. ``tree``: what its folder held.
    ``is_tainted``: text from outside was in its context."""

    state: TurnState
    text: str = ""
    is_tainted: bool = False
    usage: Usage = Usage()
    tree: str = ""
    files: TurnFiles | None = None


def shorten(text: str, chars_max: int) -> str:
    """The text, or its beginning and its end with a note of how much is left out."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def describe_result(delegate_id: str, name: str, result: DelegateResult) -> str:
    """What the parent's model reads of a delegate that has ended."""
    lines = [f"Delegate {delegate_id} ({name}) {_ENDS.get(result.state, result.state)}."]
    if result.text:
        lines.append(result.text)
    if result.files is not None:
        named = ", ".join(f"{change.path} ({change.what})" for change in result.files.changes)
        more = result.files.total - len(result.files.changes)
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"[It changed {named}{rest} in its copy. Take them over with delegate_apply.]")
    return "\n".join(lines)


_ENDS = {
    TurnState.COMPLETED: "is done",
    TurnState.CANCELLED: "was stopped",
    TurnState.FAILED: "failed",
    TurnState.INTERRUPTED: "was interrupted",
}


class Delegate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delegate as it is now. ``id`` is that of its session, ``turn_id`` of the turn that does the task.
    ``base``: the tree that it began with. ``activity``: one line about what it is doing, or its last
    words."""

    id: str
    owner: str
    turn_id: str
    parent_session: str
    parent_turn: str
    call_id: str
    root_session: str
    name: str
    depth: int
    state: TurnState
    is_waited: bool
    created_at: int
    started_at: int | None = None
    ended_at: int | None = None
    stop_asked_at: int | None = None
    model: str | None = None
    profile: str | None = None
    usage: Usage = Usage()
    asks: int = 0  # its open approvals and questions
    activity: str = ""
    base: str = ""
    result: DelegateResult | None = None
    is_given: bool = False  # the parent has its result
    applied_at: int | None = None  # when the parent took its files
    refused_at: int | None = None  # when the parent decided against them


class DelegateRights(msgspec.Struct, frozen=True):
    """What limits a delegate besides its profile. ``tools`` None: all of the profile's."""

    depth: int
    tools: tuple[str, ...] | None = None


class DelegateName(msgspec.Struct, frozen=True):
    owner: str
    session_id: str
    turn_id: str


class DueDelegates(msgspec.Struct, frozen=True):
    """What a crash may have cut off: delegates to be stopped, results that no parent has yet, and delegates
    whose parent's session is gone."""

    to_stop: tuple[DelegateName, ...] = ()
    to_give: tuple[str, ...] = ()
    orphans: tuple[DelegateName, ...] = ()


class DelegateStore(Protocol):
    """Each write is one transaction, and durable when its call returns."""

    async def start(self, new: NewDelegates) -> Sequence[Delegate]:
        """Make the sessions and turns of a tool call's delegates, once. A repeat returns those that
        are there. Raises TooManyDelegates, DelegatesTooDeep, WrongState if the parent's turn does not run."""
        ...

    async def get(self, owner: str, delegate_id: str) -> Delegate:
        """Raises NotFound, Gone if its parent's session is deleted."""
        ...

    async def of_turn(self, owner: str, turn_id: str) -> Sequence[Delegate]:
        """The delegates of a turn; each is followed by its own delegates. Raises NotFound."""
        ...

    async def of_session(self, owner: str, session_id: str) -> Sequence[Delegate]:
        """The same for all turns of a session."""
        ...

    async def rights(self, delegate_id: str) -> DelegateRights:
        """Raises NotFound."""
        ...

    async def ask_to_stop(self, owner: str, delegate_id: str) -> Delegate:
        """One that has ended stays as it is. Raises NotFound."""
        ...

    async def settle_files(self, owner: str, delegate_id: str, *, is_applied: bool) -> None:
        """Record what the parent decided about a delegate's files."""
        ...

    async def due(self, *, orphans: bool = True) -> DueDelegates:
        """``orphans`` False: without those whose parent is gone, which costs a look at every delegate."""
        ...

    async def give(self, delegate_id: str) -> Turn | None:
        """Give the result to the parent, once. Returns the parent's turn if it waited or was woken; None
        if there is nothing to give, the parent does not wait yet, or it has ended."""
        ...
