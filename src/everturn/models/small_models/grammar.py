"""A grammar (GBNF, for llama.cpp) that allows any text, but only calls of existing tools.

An answer that starts like a call must be a call of a listed tool with its arguments. Any other answer is
free. The model's first characters decide which, so the grammar does not force a call or an answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from everturn.domain.json_types import Json, JsonObject
from everturn.domain.model import ToolSchema, properties_of, required_of

_CALLS_MAX = 4
_DEPTH_MAX = 4  # of nested schemas; below that, any JSON is allowed
_OTHERS_MAX = 8  # optional arguments; with more, any object is allowed, or the grammar would grow too long
_CHARS_MAX = 4000  # of one tool

# The first character decides. A JSON fence whose content starts on its own line is an example for the user;
# CallReader still finds a call in it.
_WORDS = r"""
words ::= [^`{<\x00] any | "<" [^t\x00] any | "`" [^`\x00] any | code
code ::= "```" lang "\n" any | "```json\n" ([^{\x00] | "{\n") any
lang ::= "" | [^j`\n\x00] line | "j" [^s\n\x00] line | "js" ("" | [^o\n\x00] line)
line ::= [^\n\x00]*
any ::= [^\x00]*
"""
_VALUES = r"""
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
integer ::= "-"? ("0" | [1-9] [0-9]{0,15})
number ::= integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?
boolean ::= "true" | "false"
value ::= string | number | boolean | "null" | object | array
object ::= "{" space (string ":" space value ("," space string ":" space value)*)? space "}"
array ::= "[" space (value ("," space value)*)? space "]"
space ::= [ \n]{0,8}
"""


def calls_grammar(tools: Sequence[ToolSchema], *, has_words: bool = True) -> str:
    """One block of calls, or text. Text alone without tools; calls alone without ``has_words``.

    Equal tools give an equal grammar.
    """
    if not tools:
        return "root ::= words\n" + _WORDS.lstrip()
    call = " | ".join(_call(tool) for tool in sorted(tools, key=lambda tool: tool.name))
    block = f'"```json\\n" call ("\\n" call){{0,{_CALLS_MAX - 1}}} "\\n```"'
    if not has_words:
        return f"root ::= {block}\ncall ::= {call}\n{_VALUES.lstrip()}"
    return f"root ::= {block} | words\ncall ::= {call}\n{_WORDS.lstrip()}{_VALUES.lstrip()}"


def _call(tool: ToolSchema) -> str:
    head = _quote(f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": ')
    arguments = _object(tool.parameters, 0)
    return f'{head} {arguments if len(arguments) <= _CHARS_MAX else "object"} "}}"'


def _object(schema: JsonObject, depth: int) -> str:
    """The required arguments in their order, then any of the optional ones by name."""
    properties = properties_of(schema)
    required = [name for name in required_of(schema) if name in properties]
    others = sorted(name for name in properties if name not in required)
    if len(others) > _OTHERS_MAX or (depth and not required):
        return "object"  # spelled out, each pair would appear many times
    pairs = {name: _pair(name, properties[name], depth) for name in properties}
    if required:
        inner = ' ", " '.join(pairs[name] for name in required)
        inner += "".join(f' (", " {pairs[name]})?' for name in others)
    else:
        inner = _any_of_these([pairs[name] for name in others])
    return f'"{{" {inner} "}}"' if inner else '"{}"'


def _pair(name: str, schema: Json, depth: int) -> str:
    return f"{_quote(json.dumps(name, ensure_ascii=False) + ': ')} {_value(schema, depth)}"


def _any_of_these(pairs: list[str]) -> str:
    """Any subset of the pairs, in their order, separated by commas."""
    starts = [
        pair + "".join(f' (", " {later})?' for later in pairs[index + 1 :])
        for index, pair in enumerate(pairs)
    ]
    return f"({' | '.join(starts)})?" if starts else ""


def _value(schema: Json, depth: int) -> str:
    if not isinstance(schema, dict) or depth >= _DEPTH_MAX:
        return "value"
    if "enum" in schema:
        return _one_of(schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        item = _value(schema.get("items"), depth + 1)
        return f'"[" ({item} (", " {item})*)? "]"'
    if kind == "object" and schema.get("properties"):
        return _object(schema, depth + 1)
    return str(kind) if kind in ("string", "integer", "number", "boolean", "object") else "value"


def _one_of(values: Iterable[Json]) -> str:
    return "(" + " | ".join(_quote(json.dumps(value, ensure_ascii=False)) for value in values) + ")"


def _quote(text: str) -> str:
    """The text as a grammar literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
