"""Is a shell line plain: programs with literal arguments, joined by ``|``, ``&&``, ``||``, ``;`` or newlines?

Only such a line does what it seems to do. Bash runs code in places that contain no command: in
arithmetic (``[[ 'a[$(id)]' -eq 0 ]]``, ``declare -i``), in prompts, in the subscript of a name. No list of
those places is complete, so this is a list of what is harmless: kinds of nodes, operators, characters.
Anything else is reported and needs approval, including text that our grammar and bash could read differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import tree_sitter

# A sequence may span several lines; a statement may not.
_SEQUENCES = frozenset(("program", "list", "pipeline"))
_STATEMENTS = frozenset(
    ("command", "command_name", "concatenation", "redirected_statement", "file_redirect", "string")
)
_WORDS = frozenset(("word", "number", "file_descriptor"))
_QUOTED = frozenset(("raw_string", "string_content"))
_OPERATORS = frozenset(("|", "|&", "&&", "||", ";", "&", ">", ">>", "<", "&>", "&>>", ">&", "<&", '"'))

# No backslash, pattern, brace, tilde, dollar or comment sign. A dash, a dot or a slash is only a character.
_LITERAL = re.compile(r"(?:[A-Za-z0-9_./,:@%+=^-]|[^\x00-\x7f])+")
_BLANKS = {True: re.compile(rb"[ \t\n]*"), False: re.compile(rb"[ \t]*")}


def why_not_plain(root: tree_sitter.Node, text: str) -> str:
    """Why the line is not plain, as text for the user; empty if it is plain."""
    if any(not _is_printable(char) for char in text):
        # This includes non-ASCII blanks: programs disagree on whether they end a word.
        return "it contains invisible characters"
    if root.has_error:
        return "it cannot be parsed as a shell command"
    whole = text.encode("utf-8", "replace")
    if whole[: root.start_byte].strip(b" \t\n") or whole[root.end_byte :].strip(b" \t\n"):
        return "it contains an escaped blank"
    for node in _nodes(root):
        reason = _strange(node)
        if reason:
            return reason
    return ""


def _is_printable(char: str) -> bool:
    return char in "\n\t" or char.isprintable()


def _strange(node: tree_sitter.Node) -> str:
    text = (node.text or b"").decode("utf-8", "replace")
    if not node.is_named:
        return "" if node.type in _OPERATORS else f"it uses {node.type.strip() or 'a newline'}"
    if node.type in _WORDS:
        return "" if _LITERAL.fullmatch(text) else f"it expands {text}"
    if node.type in _QUOTED:
        return ""
    if node.type not in _SEQUENCES | _STATEMENTS:
        return f"it contains shell code ({node.type.replace('_', ' ')})"
    if node.type == "file_redirect" and len(_targets(node)) != 1:
        return "it has arguments after a redirection"  # the grammar parses them as files
    return "" if _has_plain_gaps(node) else "it contains an escaped blank"


def _targets(redirect: tree_sitter.Node) -> list[tree_sitter.Node]:
    return [child for child in redirect.named_children if child.type != "file_descriptor"]


def _has_plain_gaps(node: tree_sitter.Node) -> bool:
    """True if there are only blanks between its parts. The grammar also skips text that bash does not."""
    if node.type == "string":
        return True  # its value is taken from the whole text
    blanks = _BLANKS[node.type in _SEQUENCES]
    whole = node.text or b""
    at = 0
    for child in node.children:
        start = child.start_byte - node.start_byte
        if not blanks.fullmatch(whole[at:start]):
            return False
        at = child.end_byte - node.start_byte
    return not node.children or blanks.fullmatch(whole[at:]) is not None


def _nodes(root: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))
