"""A tool from a signature: its arguments, their JSON schema and their checks come from type hints.

A tool of ours is a subclass of ``Action`` with an ``act`` method; a tool of the user or of an embedding
program is a function under ``@tool`` (``function_tool.py``). Both are described by ``Annotated[str, "what
it is"]``.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ClassVar, Union, get_args, get_type_hints

import msgspec

from everturn.domain.json_types import Json, JsonObject
from everturn.domain.messages import Outcome
from everturn.domain.model import ToolSchema
from everturn.domain.settings import TypeForm
from everturn.domain.tool import Emit, ToolCall, ToolDoubt, ToolQuestion, ToolResult, ToolSpec, ToolWait
from everturn.tools.policy.judgement import ArgumentValues, CallContext, Judgement

Answer = Union[ToolResult, ToolQuestion, ToolWait, ToolDoubt]


class ToolFailed(Exception):
    """An ordinary failure inside a tool: its message becomes the result, with outcome ERROR."""


class Arguments:
    """The arguments of a function: schema for the model, checked values for the call."""

    def __init__(self, function: Callable[..., object], *, skip: int) -> None:
        hints = get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())[skip:]
        # A parameter of this type is not the model's: it is given the call itself.
        self.call_names = tuple(each.name for each in parameters if hints.get(each.name) is ToolCall)
        parameters = [each for each in parameters if each.name not in self.call_names]
        fields: list[Json] = []
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{function.__name__}: {parameter} cannot be given by name")
            if parameter.name not in hints:
                raise TypeError(f"{function.__name__}: the parameter {parameter.name} has no type")
            hint = _with_description(hints[parameter.name])
            if parameter.default is inspect.Parameter.empty:
                fields.append((parameter.name, hint))
            else:
                fields.append((parameter.name, hint, parameter.default))
        self._struct = msgspec.defstruct(
            function.__qualname__, fields, forbid_unknown_fields=True, kw_only=True
        )
        self._names = tuple(parameter.name for parameter in parameters)
        self.schema = _inline_references(msgspec.json.schema(self._struct))

    def check(self, given: ArgumentValues) -> ArgumentValues:
        """The values for the call. Numbers in quotes are accepted. Raises msgspec.ValidationError."""
        value = msgspec.convert(given, self._struct, strict=False)
        return {name: getattr(value, name) for name in self._names}


class Action:
    """Base of the built-in tools. A subclass's docstring is its description for the model."""

    name: ClassVar[str]
    is_safe_to_repeat: ClassVar[bool] = False
    reads_only: ClassVar[bool] = False
    takes_key: ClassVar[bool] = False
    timeout_s: ClassVar[float] = 120.0
    is_untrusted: ClassVar[bool] = True
    asks_when: ClassVar[str] = ""  # for people: what makes a call ask; empty: none does
    _arguments: ClassVar[Arguments]
    _spec: ClassVar[ToolSpec]

    def __init_subclass__(cls) -> None:
        cls._arguments = Arguments(cls.act, skip=3)
        cls._spec = ToolSpec(
            schema=ToolSchema(
                name=cls.name,
                description=inspect.cleandoc(cls.__doc__ or ""),
                parameters=cls._arguments.schema,
            ),
            is_safe_to_repeat=cls.is_safe_to_repeat,
            takes_key=cls.takes_key,
            timeout_s=cls.timeout_s,
            is_untrusted=cls.is_untrusted,
            reads_only=cls.reads_only,
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    @property
    def is_offered(self) -> bool:
        """Has it what it needs? If not, the model is not told of it, and a call says what is missing."""
        return True

    def check(self, given: ArgumentValues) -> ArgumentValues:
        return self._arguments.check(given)

    def judge(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        """What the policy should know about this call. By default nothing needs a question."""
        return Judgement(label=self.name)

    async def assess(self, call: ToolCall, arguments: ArgumentValues, context: CallContext) -> Judgement:
        """As ``judge``, of a tool that has to look something up for it. Changes nothing."""
        return self.judge(call, arguments, context)

    async def run(self, call: ToolCall, emit: Emit) -> Answer:
        return await answer_call(
            self.name, self._arguments, call, lambda given: self.act(call, emit, **given)
        )

    # ``Any``: each tool has arguments of its own, which ``Arguments`` reads and checks.
    async def act(self, *args: Any, **kwargs: Any) -> Answer:
        raise NotImplementedError


async def answer_call(
    name: str,
    arguments: Arguments,
    call: ToolCall,
    act: Callable[[ArgumentValues], Awaitable[object]],
) -> Answer:
    """Check the arguments, run the tool, and make a result of what it returns or of its ordinary failure."""
    try:
        given = arguments.check(call.arguments)
    except msgspec.ValidationError as error:
        return failure(f"The arguments of {name} are wrong: {error}. Nothing was done.")
    try:
        answer = await act(given)
    except ToolFailed as error:
        return failure(str(error))
    except OSError as error:
        return failure(f"{name} failed: {error}")
    return _result_of(name, answer)


def _result_of(name: str, answer: object) -> Answer:
    if isinstance(answer, str):
        return ToolResult(answer)
    if isinstance(answer, (ToolResult, ToolQuestion, ToolWait, ToolDoubt)):
        return answer
    if answer is None:
        return ToolResult("[done]")
    try:
        return ToolResult(msgspec.json.format(msgspec.json.encode(answer)).decode())
    except (TypeError, ValueError) as error:
        return failure(f"{name} has run, and returned what is neither text nor JSON: {error}.")


def failure(text: str, display: Json = None) -> ToolResult:
    return ToolResult(text=text, outcome=Outcome.ERROR, display=display)


def _with_description(hint: TypeForm) -> TypeForm:
    """``Annotated[int, "words"]`` as msgspec wants it; a ``msgspec.Meta`` beside it is kept."""
    if not hasattr(hint, "__metadata__"):
        return hint
    base = get_args(hint)[0]
    for extra in hint.__metadata__:
        base = Annotated[base, msgspec.Meta(description=extra) if isinstance(extra, str) else extra]
    return base


def _inline_references(schema: JsonObject) -> JsonObject:
    """The schema without references: some models and servers do not follow them."""
    definitions = schema.pop("$defs", {})

    def walk(node: Json) -> Json:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return walk(definitions[node["$ref"].rsplit("/", 1)[1]])
        return {key: walk(value) for key, value in node.items()}

    inlined: JsonObject = walk(schema)
    inlined.pop("title", None)
    return inlined
