"""What a shell command would run: every simple command in it, however it is wrapped.

The text is parsed with bash's grammar. Commands inside ``$()``, pipes, functions, here-documents and
process substitutions are found by walking the tree; commands handed to another program (``sh -c``,
``xargs``, ``sudo``, ``env``, ``find -exec`` …) by knowing how those programs take them. What cannot be
known is reported as opaque, with the reason; it is never guessed.

Finding commands is not enough where nothing contains them: bash also runs code in places that hold no
command (``[[ 'a[$(id)]' -eq 0 ]]``). ``ParsedLine.beyond`` therefore names what is not plain, that is, not a
sequence of programs with literal arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

import msgspec
import tree_sitter
import tree_sitter_bash

from everturn.tools.policy.plain import why_not_plain

_DEPTH_MAX = 8
_SPLIT_WORD = re.compile(r"\S\\\n\S")
_ANSI_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|[nrt\\'\"])")
_BESIDE_WORDS = ("variable_assignment", "herestring_redirect", "file_redirect", "heredoc_redirect")
_AROUND_COMMANDS = ("redirected_statement", "list", "pipeline", "negated_command")
_WORD_KINDS = (
    *("word", "number", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation"),
    *("expansion", "simple_expansion", "command_substitution", "process_substitution", "brace_expression"),
)
_NAME_OF_PATH = re.compile(r"^(?:/usr/local/s?bin|/usr/s?bin|/s?bin)/")


class Word(msgspec.Struct, frozen=True):
    """``is_fixed``: its value is known before the shell runs; else ``text`` is as it was written."""

    text: str
    is_fixed: bool = True


class SimpleCommand(msgspec.Struct, frozen=True):
    """One program with its arguments. ``through``: what wraps it, outermost first (``sudo``, ``xargs``)."""

    words: tuple[Word, ...]
    through: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The program, without a system folder before it."""
        return _NAME_OF_PATH.sub("", self.words[0].text)

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words[1:])

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


class Redirect(msgspec.Struct, frozen=True):
    target: Word
    is_write: bool


class ParsedLine(msgspec.Struct, frozen=True):
    """Everything a command line would do, as far as it can be seen. ``opaque``: what cannot.

    ``beyond``: what goes beyond programs with literal arguments, in words; empty if nothing does.
    """

    commands: tuple[SimpleCommand, ...]
    redirects: tuple[Redirect, ...] = ()
    opaque: tuple[str, ...] = ()
    beyond: str = ""


@cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_bash.language())


def parse(command: str) -> ParsedLine:
    """Never raises: what does not parse is opaque."""
    reader = _Reader()
    reader.script(command, (), 0)
    if _SPLIT_WORD.search(command):
        # Bash joins the two halves, the grammar does not. Inside quotes it may be the other way round, so
        # both readings count.
        reader.script(command.replace("\\\n", ""), (), 0)
    opaque = tuple(dict.fromkeys(reader.opaque))
    return ParsedLine(
        tuple(reader.commands), tuple(reader.redirects), opaque, why_not_plain(_root(command), command)
    )


def _root(text: str) -> tree_sitter.Node:
    return tree_sitter.Parser(_language()).parse(text.encode("utf-8", "replace")).root_node


class _Reader:
    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.redirects: list[Redirect] = []
        self.opaque: list[str] = []

    def script(self, text: str, through: tuple[str, ...], depth: int) -> None:
        if depth > _DEPTH_MAX:
            self.opaque.append("commands are nested too deeply to follow")
            return
        root = _root(text)
        if root.has_error:
            self.opaque.append("it cannot be parsed as a shell command")
        for node in _descendants(root):
            if node.type == "command":
                self._command(node, through, depth)
            elif node.type == "file_redirect":
                self._redirect(node)

    def _command(self, node: tree_sitter.Node, through: tuple[str, ...], depth: int) -> None:
        words = []
        for child in node.named_children:
            if child.type not in _BESIDE_WORDS:
                is_name = child.type == "command_name" and child.named_children
                words.append(_word(child.named_children[0] if is_name else child))
        words += map(_word, _later_words(node))
        if words:
            self.simple(SimpleCommand(tuple(words), through), depth, has_input=_is_fed(node))

    def simple(self, command: SimpleCommand, depth: int, *, has_input: bool = False) -> None:
        """Take one command, and the one it would run in turn."""
        if depth > _DEPTH_MAX:
            self.opaque.append("commands are nested too deeply to follow")
            return
        first = command.words[0]
        if not first.is_fixed or _is_pattern(first.text):
            self.opaque.append(f"the program is computed: {first.text}")
            return
        self.commands.append(command)
        unwrap = _unwrapper(command.name)
        if unwrap is not None:
            unwrap(self, command, depth + 1, has_input)

    def inner(self, words: tuple[Word, ...], outer: SimpleCommand, depth: int) -> None:
        if words:
            self.simple(SimpleCommand(words, (*outer.through, outer.name)), depth)

    def inner_script(self, word: Word, outer: SimpleCommand, depth: int) -> None:
        if word.is_fixed:
            self.script(word.text, (*outer.through, outer.name), depth)
        else:
            self.opaque.append(f"{outer.name} runs text that is computed: {word.text}")

    def _redirect(self, node: tree_sitter.Node) -> None:
        operator, target, _ = _redirection(node)
        if target is None:
            return
        word = _word(target)
        if operator not in (">&", "<&") or not (word.text.isdigit() or word.text == "-"):
            self.redirects.append(Redirect(word, is_write=">" in operator))


# --- words -----------------------------------------------------------------------------------------


def _word(node: tree_sitter.Node) -> Word:
    text = (node.text or b"").decode("utf-8", "replace")
    if node.type in ("word", "number", "variable_name", "special_variable_name"):
        return _bare(node, text)
    if node.type == "raw_string":
        return Word(text[1:-1])
    if node.type == "string":
        return _quote(node, text)
    if node.type == "ansi_c_string":
        return _ansi(text)
    if node.type == "concatenation":
        parts = [_word(child) for child in node.named_children]
        # Pieces the grammar left unnamed (braces, stray characters) would be lost: then nothing is fixed.
        is_whole = sum(child.end_byte - child.start_byte for child in node.named_children) == len(
            node.text or b""
        )
        if is_whole and all(part.is_fixed for part in parts) and not _expands(node):
            return Word("".join(part.text for part in parts))
    return Word(text, is_fixed=False)


def _expands(node: tree_sitter.Node) -> bool:
    """Is it a brace list or a pattern? The grammar gives brackets as words of their own."""
    texts = [child.text or b"" for child in node.named_children if child.type == "word"]
    return any(b"{" in text or b"[" in text for text in texts)


def _bare(node: tree_sitter.Node, text: str) -> Word:
    if node.named_children:
        return Word(text, is_fixed=False)
    value = re.sub(r"\\(.)", lambda found: "" if found[1] == "\n" else found[1], text, flags=re.S)
    # The shell decides what a brace list or a pattern becomes.
    is_list = re.search(r"\{[^}]*(,|\.\.)[^}]*\}", text) is not None
    is_pattern = text != "[" and any(char in text for char in "*?[")
    return Word(value, is_fixed=not is_list and not is_pattern)


def _quote(node: tree_sitter.Node, text: str) -> Word:
    if any(child.type != "string_content" for child in node.named_children):
        return Word(text, is_fixed=False)
    return Word(re.sub(r'\\([$`"\\\n])', lambda found: found[1].strip("\n"), text[1:-1]))


def _ansi(text: str) -> Word:
    """``$'…'`` with the usual escapes; with any other its value is not known."""
    if "\\" in _ANSI_ESCAPE.sub("", text):
        return Word(text, is_fixed=False)
    return Word(_ANSI_ESCAPE.sub(_unescape, text[2:-1]))


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "x":
        return chr(int(code[1:], 16))
    if code.isdigit():
        return chr(int(code, 8) & 0xFF)
    return {"n": "\n", "r": "\r", "t": "\t"}.get(code, code)


def _is_pattern(text: str) -> bool:
    return any(char in text for char in "*?[{") and text not in ("[", "[[")


def _redirection(
    node: tree_sitter.Node,
) -> tuple[str, tree_sitter.Node | None, list[tree_sitter.Node]]:
    """Its operator, its target, and the words behind it, which are the command's. The grammar takes those for
    further targets."""
    operator = next((child.type for child in node.children if not child.is_named), "")
    words = [child for child in node.named_children if child.type != "file_descriptor"]
    if not words or operator in ("<&-", ">&-"):
        return operator, None, words
    return operator, words[0], words[1:]


def _later_words(command: tree_sitter.Node) -> list[tree_sitter.Node]:
    """The arguments that stand behind a redirection: ``rm 2>x -rf /``."""
    words: list[tree_sitter.Node] = []
    node, parent = command, command.parent
    while parent is not None and parent.type in _AROUND_COMMANDS:
        if parent.type == "redirected_statement":
            for redirect in parent.named_children[1:]:
                words += _words_behind(redirect)
        elif parent.named_children[-1].end_byte != node.end_byte:
            break  # what follows belongs to a later command
        node, parent = parent, parent.parent
    return words


def _words_behind(redirect: tree_sitter.Node) -> list[tree_sitter.Node]:
    if redirect.type == "file_redirect":
        return _redirection(redirect)[2]
    words: list[tree_sitter.Node] = []
    for child in redirect.named_children if redirect.type == "heredoc_redirect" else ():
        if child.type == "file_redirect":
            words += _redirection(child)[2]
        elif child.type in _WORD_KINDS:
            words.append(child)
    return words


def _is_fed(node: tree_sitter.Node) -> bool:
    """True if the command has an input: a pipe, a file, a here-document."""
    if any(child.type in ("herestring_redirect", "heredoc_redirect") for child in node.named_children):
        return True
    parent = node.parent
    while parent is not None and parent.type in ("redirected_statement", "pipeline", "negated_command"):
        if parent.type == "pipeline" and parent.named_children[0].start_byte < node.start_byte:
            return True
        if parent.type == "redirected_statement" and any(
            child.type in ("heredoc_redirect", "herestring_redirect")
            or (child.type == "file_redirect" and (child.text or b"").lstrip(b"0123456789").startswith(b"<"))
            for child in parent.named_children
        ):
            return True
        node, parent = parent, parent.parent
    return False


def _descendants(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(current.named_children))


# --- programs that run other programs --------------------------------------------------------------

Unwrap = Callable[[_Reader, SimpleCommand, int, bool], None]


def _after_options(
    words: tuple[Word, ...], with_value: str, *, assignments: bool = False
) -> tuple[Word, ...]:
    """The words after the options; ``with_value`` names the options that take the next word."""
    takes = with_value.split()
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            return words[at + 1 :]
        if text in takes:
            at += 2
        elif (text.startswith("-") and text != "-") or (assignments and _is_assignment(text)):
            at += 1
        else:
            break
    return words[at:]


def _is_assignment(text: str) -> bool:
    return re.match(r"^\w+=", text) is not None


def _plain(with_value: str = "", *, skip: int = 0, assignments: bool = False) -> Unwrap:
    """A program that takes options, then ``skip`` words of its own, then a command."""

    def unwrap(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
        rest = _after_options(command.words[1:], with_value, assignments=assignments)[skip:]
        reader.inner(rest, command, depth)

    return unwrap


def _shell(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
    words = command.words[1:]
    for at, word in enumerate(words):
        if re.match(r"^-[a-zA-Z]*c[a-zA-Z]*$", word.text):
            if at + 1 < len(words):
                reader.inner_script(words[at + 1], command, depth)
            return
        if not word.text.startswith(("-", "+")):
            if not word.is_fixed:
                reader.opaque.append(f"{command.name} runs a script whose name is computed: {word.text}")
            return  # a script file: it is judged as the program it is
    if has_input or words:
        reader.opaque.append(f"{command.name} runs whatever flows into it")


def _env(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
    words = command.words[1:]
    for at, word in enumerate(words):
        if word.text in ("-S", "--split-string") and at + 1 < len(words):
            reader.inner_script(words[at + 1], command, depth)
            return
        if word.text.startswith(("-S", "--split-string=")):
            reader.opaque.append("env splits a string into a command")
            return
    reader.inner(_after_options(words, "-u --unset -C --chdir", assignments=True), command, depth)


def _sudo(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
    options = "-u -g -h -p -C -D -R -r -t -T -U --user --group --host --prompt --chdir --chroot"
    rest = _after_options(command.words[1:], options, assignments=True)
    if not rest and any(word.text in ("-i", "-s", "--login", "--shell") for word in command.words):
        reader.opaque.append("sudo opens a shell")
    reader.inner(rest, command, depth)


def _su(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
    words = command.words[1:]
    for at, word in enumerate(words[:-1]):
        if word.text in ("-c", "--command"):
            reader.inner_script(words[at + 1], command, depth)
            return
    reader.opaque.append(f"{command.name} opens a shell")


def _xargs(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
    options = "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-lines --max-args --max-procs --max-chars"
    reader.inner(_after_options(command.words[1:], options), command, depth)


def _find(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
    words = command.words[1:]
    at = 0
    while at < len(words):
        if words[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = [n for n in range(at + 1, len(words)) if words[n].text in (";", "+")]
            last = ends[0] if ends else len(words)
            reader.inner(words[at + 1 : last], command, depth)
            at = last
        at += 1


def _eval(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
    words = command.words[1:]
    if not words:
        return
    is_fixed = all(word.is_fixed for word in words)
    reader.inner_script(Word(" ".join(word.text for word in words), is_fixed), command, depth)


def _trap(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
    if len(command.words) > 2 and not command.words[1].text.startswith("-"):
        reader.inner_script(command.words[1], command, depth)


def _opaque(why: str) -> Unwrap:
    def unwrap(reader: _Reader, command: SimpleCommand, depth: int, has_input: bool) -> None:
        if len(command.words) > 1:
            reader.opaque.append(f"{command.name} {why}")

    return unwrap


@cache
def _unwrapper(name: str) -> Unwrap | None:
    return _table().get(name)


@cache
def _table() -> dict[str, Unwrap]:
    return {
        **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "ash", "fish"), _shell),
        "env": _env,
        "sudo": _sudo,
        "doas": _plain("-u -C"),
        "su": _su,
        "runuser": _su,
        "xargs": _xargs,
        "find": _find,
        "eval": _eval,
        "trap": _trap,
        "exec": _plain("-a"),
        **dict.fromkeys(
            ("command", "builtin", "coproc", "nohup", "setsid", "busybox", "catchsegv"), _plain()
        ),
        "time": _plain("-o -f --output --format"),
        "nice": _plain("-n --adjustment"),
        "ionice": _plain("-c -n -p --class --classdata"),
        "chrt": _plain("-p -T -P -D", skip=1),
        "taskset": _plain("-p", skip=1),
        "timeout": _plain("-k -s --kill-after --signal", skip=1),
        "stdbuf": _plain("-i -o -e --input --output --error"),
        "chroot": _plain("--userspec --groups", skip=1),
        "flock": _plain("-w -E --timeout", skip=1),
        "unshare": _plain("--map-user --map-group --root --wd"),
        "nsenter": _plain("-t --target -S -G"),
        "strace": _plain("-e -o -p -s -u -P"),
        "watch": _plain("-n --interval"),
        "parallel": _opaque("builds commands from its input"),
        "script": _opaque("runs a command of its own"),
        "alias": _opaque("changes what a word means"),
        "at": _opaque("runs something later"),
        "batch": _opaque("runs something later"),
    }
