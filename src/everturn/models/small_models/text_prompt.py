"""Writes a request with tools as plain text, for a model that cannot call tools.

The tools stand in the system prompt, and calls and results in the history are written in the form that the
model is asked to use. Each result is followed by a line that tells the model what to do next: without it, the
model repeats the call. Removing the tools instead would prevent a second call and change the cached prefix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec

from everturn.domain.json_types import Json
from everturn.domain.messages import AnyPart, Call, Message, Outcome, Result, Role, Text
from everturn.domain.model import ModelRequest, ToolSchema, properties_of, required_of
from everturn.models.history import arguments_of
from everturn.models.small_models.task_progress import (
    find_repeats,
    is_read_only,
    pair_calls,
    request_text,
    starts_turn,
)

_ASK = """You can use tools, one step at a time. These are the tools; arguments with ? can be left out:
{tools}

To use a tool, answer with nothing but one block like this:
```json
{{"name": "<tool>", "arguments": {{<arguments>}}}}
```
Then you are given its result. There are no other tools. When no tool is needed, and to show text or code,
answer in plain words."""

# The line after a result. It repeats the request, which a small model has forgotten four steps later.
_AFTER_RESULT = (
    'Asked was: "{task}" If a part of that is left, use the next tool. If all of it is done, answer in plain '
    "words with what the result says."
)
# After finding what it should change, a small model claims that it has changed it.
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

# Example turns before the real ones. A small model imitates its own history. With instructions alone it
# writes a program on one line, guesses its output instead of running it, and overwrites a file it should
# append to.
_EXAMPLES: tuple[tuple[str, Json], ...] = (
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


def as_text(request: ModelRequest, *, is_held: bool = False) -> ModelRequest:
    """The same request for a model that knows only text.

    ``is_held``: a grammar stops the model from repeating a call, so the text tells it to answer instead.
    """
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
    """The example turns as messages."""
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
    """The tool as a function signature on one line.

    A JSON schema takes four times as many tokens; a small model on one core reads 30 to 100 tokens a second.
    """
    schema = tool.parameters
    required = required_of(schema)
    parts = [
        f"{name}{'' if name in required else '?'}: {_kind(about)}"
        for name, about in sorted(properties_of(schema).items(), key=lambda item: _place(item[0], required))
    ]
    about = " ".join(tool.description.split("\n\n")[0].split())
    return f"- {tool.name}({', '.join(parts)}): {about}"


def _place(name: str, required: Sequence[str]) -> tuple[int, str]:
    """Sort key: required arguments first, in their order, then the others by name."""
    return (list(required).index(name), "") if name in required else (len(required), name)


def _kind(schema: Json) -> str:
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
    """The messages with calls and results as text.

    The line after a result depends only on earlier messages. So the text of a longer history begins with the
    text of a shorter one, and the server can reuse its cache.
    """
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
    """The line after these results: after reading, act; after acting and checking, do not start again."""
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
