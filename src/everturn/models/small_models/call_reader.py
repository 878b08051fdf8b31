"""Finds tool calls in the text that a model streams."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from everturn.domain.json_types import Json
from everturn.domain.messages import Call

_HELD_CHARS_MAX = 64_000
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
    """Separates calls from visible text while it streams.

    Only text that may be a call is held back: a fence without a language or for JSON, a line that starts with
    a brace, a ``<tool_call>``. Everything else passes at once.
    """

    def __init__(self, tools: Sequence[str]) -> None:
        self._tools = frozenset(tools)
        self._held = ""
        self._mode = "text"  # text | block (may be a call) | code (is none)
        self._is_line_start = True
        self.calls: list[Call] = []
        self.is_past_calls = False

    def feed(self, text: str) -> str:
        """Take the next piece of text; return what can be shown."""
        if not self._tools:
            return text
        self._held += text
        out = ""
        while True:
            before = (len(self._held), self._mode)
            out += self._emit({"text": self._text, "block": self._block, "code": self._code}[self._mode]())
            if before == (len(self._held), self._mode):
                return out

    def rest(self) -> str:
        """The text still held at the end. An unclosed block that is a call is kept as one."""
        held, self._held = self._held, ""
        if self._mode == "block" and self._take(_unwrap(held)):
            held = ""
        return self._emit(held)

    def _emit(self, out: str) -> str:
        """Text before a call is shown; text after a call is dropped."""
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
        """Where the held block ends; None while it is open."""
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
        """Keep the calls in the block. False if there are none, so that the block is shown."""
        calls = list(self._calls_in(text))
        self.calls += calls
        return bool(calls)

    def _calls_in(self, text: str) -> Iterator[Call]:
        values = _values(text)
        if values is None:
            # Malformed, but clearly meant for a tool: the engine tells the model what is wrong.
            named = _NAME.search(text)
            if named and named[1] in self._tools:
                yield Call("", named[1], text)
            return
        for value in values:
            call = self._call(value)
            if call is not None:
                yield call

    def _call(self, value: Json) -> Call | None:
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


def _values(text: str) -> list[Json] | None:
    """The JSON values in the text, one after another; None if the text is anything else."""
    for candidate in (text, _TRAILING_COMMA.sub(r"\1", text)):
        values: list[Json] = []
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
