"""Tool calls for models that cannot call: they are told to write a call as JSON, and it is read.

Small models write a call inside a fence even where a server has a place for it, so the native way
finds nothing. Here the tools stand in the system prompt, and calls and results in the history are
plain text in the very form that is asked for. After a result the model is told to answer from it:
without that line it repeats the call; with the tools taken away it could not make a second one, and
the cached prefix would be lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from everturn.domain.messages import AnyPart, Call, Message, Outcome, Result, Role, Text
from everturn.domain.model import Abilities, Chunk, Finish, Model, ModelRequest, TextChunk, ToolSchema
from everturn.models.history import arguments_of, unique_calls
from everturn.models.steering.grammar import calls_grammar
from everturn.models.steering.task_progress import (
    find_repeats,
    is_read_only,
    is_repeating,
    must_call,
    pair_calls,
    request_text,
    select_tools,
    starts_turn,
)
from everturn.models.wire import digest, encode

_HELD_CHARS_MAX = 64_000

_ASK = """You can use tools, one step at a time. These are the tools; arguments with ? can be left out:
{tools}

To use a tool, answer with nothing but one block like this:
```json
{{"name": "<tool>", "arguments": {{<arguments>}}}}
```
Then you are given its result. There are no other tools. When no tool is needed, and to show text or code,
answer in plain words."""

# What a result is followed by. The request is said again there: four steps later a small model has lost it,
# and goes on with what it is doing.
_AFTER_RESULT = (
    'Asked was: "{task}" If a part of that is left, use the next tool. If all of it is done, answer in plain '
    "words with what the result says."
)
# Looking is not doing: having found what it was to change, the model says that it has changed it.
_AFTER_LOOKING = (
    'Asked was: "{task}" If a change was asked for, make it now with the next tool. If not, answer in plain '
    "words with what the result says."
)
_AFTER_FAILURE = (
    "This failed. See why and mend it: correct the file with edit_file, or the arguments, then do it again. "
    "Answer in words only if it cannot be done."
)
_AFTER_REPEAT = "You have done this before. Now answer in plain words."
_TASK_CHARS_MAX = 300

# Conversations that come before the real one. A small model does as it has done: told only in words, it
# writes a program on one line, tells what it would print instead of running it, and writes over the file that
# it was to add to.
_EXAMPLES: tuple[tuple[str, Any], ...] = (
    ("user", "Add Zoe to the end of names.txt. How many names are there now?"),
    ("terminal", {"command": "echo 'Zoe' >> names.txt && wc -l names.txt"}),
    ("", "3 names.txt"),
    ("assistant", "I added Zoe. There are 3 names in names.txt now."),
    ("user", "In menu.txt, soup should cost 6 instead of 5."),
    ("read_file", {"path": "menu.txt"}),
    ("", "     1\tbread 2\n     2\tsoup 5"),
    ("edit_file", {"path": "menu.txt", "old": "soup 5", "new": "soup 6"}),
    ("", "Edited menu.txt: +1 -1."),
    ("assistant", "Soup costs 6 in menu.txt now."),
    ("user", "One of the files says 'teh'. Correct it."),
    ("terminal", {"command": "grep -rn 'teh' ."}),
    ("", "./letter.txt:4:Thank you for teh book."),
    ("edit_file", {"path": "letter.txt", "old": "teh book", "new": "the book"}),
    ("", "Edited letter.txt: +1 -1."),
    ("assistant", "It was in letter.txt, and says 'the' now."),
    ("user", "Write count.py that counts to three, and run it."),
    ("write_file", {"path": "count.py", "content": "for i in range(1, 4):\n    print(i)\n"}),
    ("", "Made count.py (2 lines)."),
    ("terminal", {"command": "python3 count.py"}),
    ("", "1\n2\n3"),
    ("assistant", "I wrote count.py and ran it. It printed:\n1\n2\n3"),
)
_EXAMPLE_TOOLS = frozenset({"edit_file", "read_file", "terminal", "write_file"})


class ToolBrief(msgspec.Struct, frozen=True):
    """A tool as a small model is told of it: these arguments, in this order, and these words."""

    about: str
    arguments: tuple[str, ...] = ()


class TextCalls:
    """A model whose calls are read from its text.

    It is not told of the ``hidden`` tools, and of those in ``told`` only what stands there. With
    ``has_grammar``, for servers that can hold an answer to one, it can call nothing else.
    """

    def __init__(
        self,
        model: Model,
        hidden: frozenset[str] = frozenset(),
        told: Mapping[str, ToolBrief] | None = None,
        *,
        has_grammar: bool = False,
    ) -> None:
        self._model = model
        self._hidden = hidden
        self._told = told or {}
        self._has_grammar = has_grammar

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def abilities(self) -> Abilities:
        return self._model.abilities

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        tools = tuple(self._apply_brief(tool) for tool in request.tools if tool.name not in self._hidden)
        request = msgspec.structs.replace(request, tools=tools)
        written = as_text(request, is_held=self._has_grammar)
        callable_ = tools
        if self._has_grammar:
            # A small model that goes round in a circle does so until its limits: it is made to answer.
            is_round = is_repeating(request.messages)
            callable_ = () if is_round else select_tools(tools, request.messages)
        if self._has_grammar and tools:
            grammar = calls_grammar(callable_, has_words=not callable_ or not must_call(request.messages))
            written = msgspec.structs.replace(written, grammar=grammar)
        async with (
            self._model.stream(written) as chunks,
            aclosing(_read(chunks, msgspec.structs.replace(request, tools=callable_))) as read,
        ):
            yield read

    def _apply_brief(self, tool: ToolSchema) -> ToolSchema:
        told = self._told.get(tool.name)
        if told is None:
            return tool
        known = tool.parameters.get("properties", {})
        names = [name for name in told.arguments if name in known]
        parameters = {
            "type": "object",
            "properties": {name: known[name] for name in names},
            "required": names,
        }
        return ToolSchema(tool.name, told.about, parameters)


async def _read(chunks: AsyncIterator[Chunk], request: ModelRequest) -> AsyncGenerator[Chunk, None]:
    reader = CallReader([tool.name for tool in request.tools])
    async for chunk in chunks:
        if isinstance(chunk, TextChunk):
            if text := reader.feed(chunk.text):
                yield TextChunk(text)
            if reader.is_past_calls:
                # It goes on to invent the result: nobody wants to hear that. The usage is not known.
                yield _finish(Finish("calls"), reader, request)
                return
        elif isinstance(chunk, Finish):
            if text := reader.rest():
                yield TextChunk(text)
            yield _finish(chunk, reader, request)
        else:
            yield chunk


def _finish(finish: Finish, reader: CallReader, request: ModelRequest) -> Finish:
    if not reader.calls:
        return finish
    calls = unique_calls(reader.calls, request, digest(encode(request)))
    return msgspec.structs.replace(finish, reason="calls", calls=calls)


# --- the request -----------------------------------------------------------------------------------


def as_text(request: ModelRequest, *, is_held: bool = False) -> ModelRequest:
    """The same request for a model that knows only text. ``is_held``: a grammar follows its turns, and ends
    those that go round in a circle; it is told so."""
    system = request.system
    shown: tuple[Message, ...] = ()
    if request.tools:
        tools = "\n".join(_describe_tool(tool) for tool in sorted(request.tools, key=lambda tool: tool.name))
        system = f"{system}\n\n{_ASK.format(tools=tools)}".strip()
        if {tool.name for tool in request.tools} >= _EXAMPLE_TOOLS:
            shown = tuple(_example_messages())
    messages = tuple(_write_as_text((*shown, *request.messages), is_held))
    return msgspec.structs.replace(request, system=system, messages=messages, tools=())


def _example_messages() -> Iterator[Message]:
    """The conversations that come before the real one."""
    name = ""
    for index, (who, what) in enumerate(_EXAMPLES):
        part: AnyPart
        match who:
            case "user" | "assistant":
                role, part = Role(who), Text(what)
            case "":
                role, part = Role.TOOL, Result("", name, what, Outcome.OK)
            case _:
                role, part, name = Role.ASSISTANT, Call("", who, json.dumps(what)), who
        yield Message(f"msg_{index}", "", role, (part,), created_at=0)


def _describe_tool(tool: ToolSchema) -> str:
    """The tool in one line, as a function. A schema says the same in four times as many tokens, and a small
    model on one core reads thirty to a hundred of them in a second."""
    schema = tool.parameters
    required = schema.get("required", ())
    parts = [
        f"{name}{'' if name in required else '?'}: {_kind(about)}"
        for name, about in sorted(
            schema.get("properties", {}).items(), key=lambda item: _place(item[0], required)
        )
    ]
    about = " ".join(tool.description.split("\n\n")[0].split())
    return f"- {tool.name}({', '.join(parts)}): {about}"


def _place(name: str, required: Sequence[str]) -> tuple[int, str]:
    """What must be given comes first, in its own order; the rest by name."""
    return (list(required).index(name), "") if name in required else (len(required), name)


def _kind(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items'))}]"
    if schema.get("type") == "object" and schema.get("properties"):
        inner = (f"{name}: {_kind(about)}" for name, about in sorted(schema["properties"].items()))
        return "{" + ", ".join(inner) + "}"
    return str(schema.get("type", "any"))


def _write_as_text(messages: Sequence[Message], is_held: bool) -> Iterator[Message]:
    """The messages with calls and results as text. What follows a result depends on what came before it only,
    so that the text of a longer conversation begins with that of a shorter one."""
    task, has_acted = "", False
    calls: Sequence[Message] = ()
    for message, is_repeat in zip(messages, find_repeats(messages), strict=True):
        if message.role is not Role.TOOL:
            if starts_turn(message):
                task, has_acted = " ".join(request_text(message).split())[:_TASK_CHARS_MAX], False
            calls = (message,)
            yield _write_calls(message)
            continue
        steps = list(pair_calls((*calls, message)))
        has_looked = all(is_read_only(call) for call, _ in steps)
        has_acted = has_acted or any(
            result.outcome is Outcome.OK and not is_read_only(call) for call, result in steps
        )
        results = [part for part in message.parts if isinstance(part, Result)]
        after = _after(results, task, is_read_only=has_looked and not has_acted)
        yield _write_results(message, _AFTER_REPEAT if is_held and is_repeat else after)


def _write_calls(message: Message) -> Message:
    calls = [part for part in message.parts if isinstance(part, Call)]
    if not calls:
        return message
    rest: list[AnyPart] = [part for part in message.parts if not isinstance(part, Call)]
    gap = "\n" if any(isinstance(part, Text) and not part.is_abandoned for part in rest) else ""
    written = gap + "\n".join(_write_call(call) for call in calls)
    return msgspec.structs.replace(message, parts=(*rest, Text(written)))


def _after(results: Sequence[Result], task: str, *, is_read_only: bool) -> str:
    """Having looked, it is to act; having acted and looked at that, it is not to begin again."""
    if all(result.outcome is Outcome.ERROR for result in results):
        return _AFTER_FAILURE
    return (_AFTER_LOOKING if is_read_only else _AFTER_RESULT).format(task=task)


def _write_results(message: Message, after: str) -> Message:
    said = [f"Result of {part.name}:\n{part.text}" for part in message.parts if isinstance(part, Result)]
    text = "\n\n".join([*said, after])
    return msgspec.structs.replace(message, role=Role.USER, parts=(Text(text),))


def _write_call(call: Call) -> str:
    arguments = json.dumps(arguments_of(call), ensure_ascii=False)
    return f'```json\n{{"name": {json.dumps(call.name)}, "arguments": {arguments}}}\n```'


# --- the answer ------------------------------------------------------------------------------------

_OPENERS = ("```", "<tool_call>", "{")
_OPENING = re.compile(r"^[ \t]*(```|<tool_call>|\{)", re.MULTILINE)
_FENCE = re.compile(r"[ \t]*```([^\n`]*)\n")
_FENCE_END = re.compile(r"\n?[ \t]*```[ \t]*(?:\n|$)")
_TAG_END = "</tool_call>"
_CALL_FENCES = frozenset({"", "json", "tool_call", "tool", "tool_code"})
_NAME = re.compile(r'"(?:name|tool)"\s*:\s*"([^"\n]{1,128})"')
_TRAILING_COMMA = re.compile(r",\s*([}\]])")
_json = json.JSONDecoder(strict=False)  # line breaks inside strings are the commonest mistake


class CallReader:
    """Takes text as it streams, gives out what is for people, keeps the calls.

    Only what may be a call is held back: a fence without a language or with one of JSON, a line that
    begins with a brace, a ``<tool_call>``. Everything else passes at once.
    """

    def __init__(self, tools: Sequence[str]) -> None:
        self._tools = frozenset(tools)
        self._held = ""
        self._mode = "text"  # text | block (may be a call) | code (is none)
        self._is_line_start = True
        self.calls: list[Call] = []
        self.is_past_calls = False

    def feed(self, text: str) -> str:
        if not self._tools:
            return text
        self._held += text
        out = ""
        while True:
            before = (len(self._held), self._mode)
            out += self._given({"text": self._text, "block": self._block, "code": self._code}[self._mode]())
            if before == (len(self._held), self._mode):
                return out

    def rest(self) -> str:
        """What is still held at the end; an unclosed block may be a call all the same."""
        held, self._held = self._held, ""
        if self._mode == "block" and self._take(_unwrap(held)):
            held = ""
        return self._given(held)

    def _given(self, out: str) -> str:
        """Text before a call is said; text after one is not."""
        if not self.calls:
            return out
        if out.strip():
            self.is_past_calls = True
        return ""

    def _text(self) -> str:
        start = 0 if self._is_line_start else self._held.find("\n") + 1
        found = _OPENING.search(self._held, start) if self._is_line_start or start else None
        if found:
            self._mode = "block"
            return self._cut(found.start())
        line = self._held.rfind("\n") + 1
        tail = self._held[line:]
        may_open = (line or self._is_line_start) and any(
            opener.startswith(tail.strip()) for opener in _OPENERS
        )
        out = self._cut(line if may_open else len(self._held))
        if out:
            self._is_line_start = out.endswith("\n")
        return out

    def _block(self) -> str:
        end = self._block_end()
        if end is None:
            if self._mode == "block" and len(self._held) > _HELD_CHARS_MAX:
                self._mode, self._is_line_start = "text", False
                return self._cut(len(self._held))
            return ""
        block = self._cut(end)
        self._mode, self._is_line_start = "text", block.endswith("\n")
        return "" if self._take(_unwrap(block)) else block

    def _block_end(self) -> int | None:
        """Where the held block ends; None while that is open."""
        held = self._held
        opener = held.lstrip(" \t")
        if opener.startswith("```"):
            fence = _FENCE.match(held)
            if fence is None:
                return None
            if fence[1].strip().lower() not in _CALL_FENCES:
                self._mode = "code"
                return None
            closing = _FENCE_END.search(held, fence.end() - 1)
            return closing.end() if closing and closing.end() > fence.end() else None
        if opener.startswith("<"):
            end = held.find(_TAG_END)
            return None if end < 0 else end + len(_TAG_END)
        if not held.rstrip().endswith("}"):
            return None
        try:
            return _json.raw_decode(held, len(held) - len(opener))[1]
        except ValueError:
            return None

    def _code(self) -> str:
        """Code of another language passes line by line until its fence closes."""
        out = ""
        is_first = _FENCE.match(self._held) is not None and self._is_line_start
        while "\n" in self._held:
            line = self._cut(self._held.index("\n") + 1)
            out += line
            if line.strip() == "```" and not is_first:
                self._mode, self._is_line_start = "text", True
                return out
            is_first = False
            self._is_line_start = False
        return out

    def _cut(self, end: int) -> str:
        out, self._held = self._held[:end], self._held[end:]
        return out

    def _take(self, text: str) -> bool:
        """Keep the calls that the block holds. False: it holds none and is for people."""
        calls = list(self._calls_in(text))
        self.calls += calls
        return bool(calls)

    def _calls_in(self, text: str) -> Iterator[Call]:
        values = _values(text)
        if values is None:
            # Broken, yet clearly meant for a tool: the engine tells the model what is wrong with it.
            named = _NAME.search(text)
            if named and named[1] in self._tools:
                yield Call("", named[1], text)
            return
        for value in values:
            call = self._call(value)
            if call is not None:
                yield call

    def _call(self, value: Any) -> Call | None:
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            value = value["function"]
        if not isinstance(value, dict):
            return None
        name = value.get("name") or value.get("tool")
        given = next((value[key] for key in ("arguments", "parameters", "args") if key in value), None)
        if not isinstance(name, str) or (name not in self._tools and not isinstance(given, dict)):
            return None
        if isinstance(given, str):
            return Call("", name, given)
        return Call("", name, json.dumps(given or {}, ensure_ascii=False))


def _unwrap(block: str) -> str:
    """The block without its fence or tags."""
    text = block.strip()
    if text.startswith("```"):
        text = re.sub(r"^```[^\n]*\n?|\n?[ \t]*```$", "", text)
    return text.removeprefix("<tool_call>").removesuffix(_TAG_END).strip()


def _values(text: str) -> list[Any] | None:
    """The JSON values that stand one after the other in the text; None if it is not that."""
    for candidate in (text, _TRAILING_COMMA.sub(r"\1", text)):
        values: list[Any] = []
        at = 0
        try:
            while at < len(candidate):
                value, at = _json.raw_decode(candidate, at)
                values += value if isinstance(value, list) else [value]
                while at < len(candidate) and candidate[at] in " \t\r\n,;":
                    at += 1
        except ValueError:
            continue
        return values
    return None
