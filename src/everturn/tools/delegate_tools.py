"""Tools for delegates: hand over tasks, read and take over what came of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Literal, Protocol

import msgspec

from everturn.domain.budgets import AMOUNT_MAX, MICROS
from everturn.domain.delegates import NAME_CHARS_MAX, Delegate, DelegateTask, describe_result
from everturn.domain.messages import Outcome
from everturn.domain.tool import Emit, ToolCall, ToolResult, ToolWait
from everturn.domain.working_copies import FilesChoice
from everturn.tools.mcp.tool_search import CALL, FIND
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Concern, Judgement, one_line
from everturn.tools.schema import Action, ToolFailed

_TASKS_MAX = 1000
DelegateId = Annotated[str, "The delegate, as delegate named it"]


class _Changed(Protocol):
    @property
    def path(self) -> str: ...


class _Restored(Protocol):
    @property
    def changes_total(self) -> int: ...

    @property
    def changes(self) -> Sequence[_Changed]: ...


class AppliedFiles(Protocol):
    """What was written, and the files that were changed in the folder meanwhile."""

    @property
    def restored(self) -> _Restored: ...

    @property
    def conflicts(self) -> Sequence[_Changed]: ...


class Delegates(Protocol):
    """What the tools need of the engine."""

    async def start(
        self, call: ToolCall, tasks: Sequence[DelegateTask], *, is_waited: bool
    ) -> Sequence[Delegate]: ...

    async def get(self, call: ToolCall, delegate_id: str) -> Delegate: ...

    async def stop(self, owner: str, delegate_id: str) -> Delegate: ...

    async def apply(
        self, delegate: Delegate, paths: Sequence[bytes] = (), choice: FilesChoice | None = None
    ) -> AppliedFiles: ...

    async def refuse(self, delegate: Delegate) -> None: ...


class GivenTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task for one delegate."""

    instructions: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            description="Everything it needs to know: it sees nothing of this conversation",
        ),
    ]
    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX, description="A few words for people")] = ""
    tools: Annotated[
        tuple[str, ...] | None,
        msgspec.Meta(description="The only tools it may use; all of yours if left out"),
    ] = None
    profile: Annotated[
        str | None, msgspec.Meta(description="Another profile, which may allow no more than yours")
    ] = None
    model: Annotated[str | None, msgspec.Meta(description="Another model, as provider:name")] = None
    files: Annotated[
        # Calls that were stored before there were three choices have a bool.
        Literal["copy", "read", "none"] | bool,
        msgspec.Meta(
            description="copy: a copy of the workspace, to work in; read: the same, only to read: it gets no "
            "tool that changes anything; none: an empty folder"
        ),
    ] = "copy"
    paths: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            max_length=100, description="Only these of the files, e.g. src/ or *.md; all if left out"
        ),
    ] = ()
    budget_tokens: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=AMOUNT_MAX)] | None,
        msgspec.Meta(description="Tokens that it may use"),
    ] = None
    budget_usd: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=AMOUNT_MAX / MICROS)] | None,
        msgspec.Meta(description="Dollars that it may cost"),
    ] = None


Tasks = Annotated[
    Annotated[tuple[GivenTask, ...], msgspec.Meta(min_length=1, max_length=_TASKS_MAX)],
    "The tasks; each gets a delegate of its own, and they work at the same time",
]
Wait = Annotated[
    bool, "Wait for all of them and get their answers; otherwise go on, and get a report when each ends"
]
OnConflict = Annotated[
    FilesChoice | None,
    "About files that were changed here meanwhile: restore takes the delegate's, keep leaves yours, both "
    "keeps yours beside it under another name. Left out: nothing is written if there are any",
]


class OwnRights(msgspec.Struct, frozen=True):
    """The names of the tools that a session has. ``found``: those that it finds and calls through another
    (see ``mcp.tool_search``). ``reading``: those of them that change nothing."""

    listed: frozenset[str]
    found: frozenset[str] = frozenset()
    reading: frozenset[str] = frozenset()


RightsOf = Callable[[ToolCall], Awaitable[OwnRights]]
FindExcess = Callable[[ToolCall, str], Awaitable[str]]
"""What a session with this profile could do that the one of the call cannot, in a few words."""
ModelOf = Callable[[str | None], str | None]
"""The model that a profile names; None: the default one."""


class DelegateTool(Action):
    """Hand over tasks to delegates: agents like you, each with a conversation and a copy of the workspace of
    its own. Use them for independent pieces of work, or to keep long reading out of this conversation.

    A delegate's files come back only if you take them over with delegate_apply."""

    name = "delegate"
    takes_key = True
    is_untrusted = False

    def __init__(
        self, delegates: Delegates, rights_of: RightsOf, find_excess: FindExcess, model_of: ModelOf
    ) -> None:
        self._delegates = delegates
        self._rights_of = rights_of
        self._find_excess = find_excess
        self._model_of = model_of

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        names = ", ".join(task.name or one_line(task.instructions)[:40] for task in arguments["tasks"])
        models = dict.fromkeys(self._other_model(call, task) for task in arguments["tasks"])
        concerns = tuple(_concern_about(model) for model in models if model is not None)
        return Judgement(label=one_line(f"delegate {names}"), concerns=concerns)

    def _other_model(self, call: ToolCall, task: GivenTask) -> str | None:
        """The model of another provider that a delegate would use, so that it gets text which only the own
        one has so far; an empty text for the default model. None: there is no such."""
        wanted = task.model
        if wanted is None and task.profile is not None:
            wanted = self._model_of(task.profile)
            if wanted == self._model_of(call.profile):
                return None
        elif wanted is None:
            return None  # it uses the model of this session
        is_same = wanted is not None and wanted.partition(":")[0] == call.model.partition(":")[0]
        return None if is_same else wanted or ""

    async def act(self, call: ToolCall, emit: Emit, tasks: Tasks, wait: Wait = True) -> ToolResult | ToolWait:
        own = await self._rights_of(call)
        wanted = [await self._task(call, own, task) for task in tasks]
        started = await self._delegates.start(call, wanted, is_waited=wait)
        if wait:
            return ToolWait(tuple(delegate.id for delegate in started))
        names = "\n".join(f"{delegate.id} ({delegate.name})" for delegate in started)
        return ToolResult(f"Started:\n{names}\nYou get a report when each of them ends.")

    async def _task(self, call: ToolCall, own: OwnRights, task: GivenTask) -> DelegateTask:
        """Raises ToolFailed where the delegate would have more rights than this session (E09)."""
        unknown = sorted(set(task.tools or ()) - own.listed - own.found)
        if unknown:
            have = ", ".join(sorted(own.listed))
            raise ToolFailed(
                f"You have no tool {unknown[0]!r} to hand on. Nothing was started. Yours: {have}."
            )
        if task.profile is not None:
            excess = await self._find_excess(call, task.profile)
            if excess:  # guard: e09
                raise ToolFailed(
                    f"The profile {task.profile!r} allows more than this session: {excess}. Nothing was "
                    "started. Leave the profile out, or name one that allows less."
                )
        tools = None if task.tools is None else _names_of(task.tools, own)
        if task.tools is None and task.profile is not None:
            tools = _names_of(own.listed, own)  # guard: e09
        if task.files == "read":
            tools = _only_reading(task, own)
        has_files = task.files not in ("none", False)
        if task.paths and not has_files:
            raise ToolFailed("A delegate without files gets no `paths`. Nothing was started.")
        return DelegateTask(
            task.instructions,
            " ".join(task.name.split()),
            task.profile,
            task.model,
            tools,
            has_files,
            task.budget_tokens,
            task.budget_usd,
            task.paths,
        )


class DelegateResultTool(Action):
    """Read what a delegate answered, or how far it is."""

    name = "delegate_result"
    is_safe_to_repeat = True
    reads_only = True

    def __init__(self, delegates: Delegates) -> None:
        self._delegates = delegates

    async def act(self, call: ToolCall, emit: Emit, delegate_id: DelegateId) -> ToolResult:
        delegate = await self._delegates.get(call, delegate_id)
        if delegate.result is None:
            return ToolResult(f"{delegate.id} ({delegate.name}) is {delegate.state}. {delegate.activity}")
        return ToolResult(describe_result(delegate.id, delegate.name, delegate.result))


class DelegateApply(Action):
    """Take over the files that a delegate changed in its copy of the workspace, or refuse them. Files that
    were changed here meanwhile are never overwritten unless you say so."""

    name = "delegate_apply"
    is_safe_to_repeat = True

    def __init__(self, delegates: Delegates) -> None:
        self._delegates = delegates

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        word = "refuse" if arguments.get("refuse") else "take over"
        return Judgement(label=one_line(f"{word} the files of {arguments['delegate_id']}"))

    async def act(
        self,
        call: ToolCall,
        emit: Emit,
        delegate_id: DelegateId,
        paths: Annotated[tuple[str, ...], "Only these files; all of them if left out"] = (),
        on_conflict: OnConflict = None,
        refuse: Annotated[bool, "Do not take them over; only record that"] = False,
    ) -> ToolResult:
        delegate = await self._delegates.get(call, delegate_id)
        if refuse:
            await self._delegates.refuse(delegate)
            return ToolResult("Recorded: the files are not taken over. They stay with the delegate.")
        given = tuple(path.encode("utf-8", "surrogateescape") for path in paths)
        applied = await self._delegates.apply(delegate, given, on_conflict)
        if applied.conflicts and on_conflict is None:
            named = ", ".join(one.path for one in applied.conflicts)
            text = f"Nothing was written: changed here meanwhile: {named}. Say what to do with on_conflict."
            return ToolResult(text, Outcome.ERROR)
        named = ", ".join(one.path for one in applied.restored.changes)
        return ToolResult(f"Took over {applied.restored.changes_total} files: {named}.")


class DelegateStop(Action):
    """Stop a delegate. What it has said and made so far is kept."""

    name = "delegate_stop"
    is_safe_to_repeat = True
    is_untrusted = False

    def __init__(self, delegates: Delegates) -> None:
        self._delegates = delegates

    async def act(self, call: ToolCall, emit: Emit, delegate_id: DelegateId) -> ToolResult:
        await self._delegates.get(call, delegate_id)
        delegate = await self._delegates.stop(call.owner, delegate_id)
        is_over = delegate.result is not None
        return ToolResult("It had ended." if is_over else "It is being stopped.")


def _only_reading(task: GivenTask, own: OwnRights) -> tuple[str, ...]:
    """The tools of a delegate that only reads. Raises ToolFailed for one that could change something."""
    changing = sorted(set(task.tools or ()) - own.reading)
    if changing:  # guard: e09
        raise ToolFailed(
            f"The tool {changing[0]!r} can change something, but the delegate was to read only. Nothing was "
            f"started. Leave `tools` out, or name some of: {', '.join(sorted(own.reading))}."
        )
    chosen = own.reading if task.tools is None else frozenset(task.tools)
    return tuple(sorted(chosen - {FIND}))


def _names_of(tools: Iterable[str], own: OwnRights) -> tuple[str, ...]:
    """Their names. In the place of the tool that calls others stand those that it calls here: under another
    profile it would call others."""
    named = set(tools)
    if CALL in named:
        named |= own.found
    return tuple(sorted(named - {CALL, FIND}))  # guard: e09


def _concern_about(model: str) -> Concern:
    shown = f"the model {model}, of another provider" if model else "the default model"
    return Concern(
        f"it sends a task and files to {shown}",
        key=f"delegate model {model}",
        sends=True,
        covers=f"delegate to {shown}",
    )


def delegate_tools(
    delegates: Delegates, rights_of: RightsOf, find_excess: FindExcess, model_of: ModelOf
) -> tuple[Action, ...]:
    return (
        DelegateTool(delegates, rights_of, find_excess, model_of),
        DelegateResultTool(delegates),
        DelegateApply(delegates),
        DelegateStop(delegates),
    )
