"""Programs that may run without a question where there is no sandbox: they read the workspace, or only print.

A program is listed with the options that it may be given, because most readers have one that writes, runs
or reads something else (``sort -o``, ``test -v``, ``md5sum -c``, ``wc --files0-from``, ``grep -f``). None of
the listed options takes a file or goes through folders.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from everturn.tools.policy.shell import SimpleCommand

# They print their arguments or the system's name, and open no file with any option.
_PRINTERS = frozenset(
    ("basename", "dirname", "echo", "false", "id", "pwd", "seq", "tr", "true", "uname", "whoami")
)
_GREP = (
    "ABCEFGHLPTabcehilmnoqsvwxyz color colour count context ignore-case invert-match line-number max-count"
)
_SUM = "btz tag text binary"
# Letters of short options, then names of long ones.
_READERS = {
    "cat": "AETbenstuv number show-all show-ends show-tabs",
    "cksum": "",
    "cmp": "bilns bytes silent quiet",
    "comm": "z check-order nocheck-order output-delimiter",
    "cut": "bcdfnsz bytes characters complement delimiter fields only-delimited output-delimiter",
    "diff": "BEUZbcdeitquswy brief color ignore-all-space ignore-blank-lines ignore-case unified",
    "egrep": _GREP,
    "fgrep": _GREP,
    "grep": _GREP,
    "head": "cnqvz bytes lines quiet verbose",
    "ls": "1ABCFGNQSTUXabcdfghiklmnopqrstuvwx all almost-all color full-time group-directories-first "
    "human-readable reverse size sort time time-style",
    "md5sum": _SUM,
    "nl": "bdfhilnpsvw",
    "od": "ANSabcdfhijlostvwx",
    "paste": "dsz delimiters serial",
    "rev": "",
    "sha1sum": _SUM,
    "sha256sum": _SUM,
    "sha512sum": _SUM,
    "stat": "cft format printf terse",
    "tac": "brs",
    "tail": "cnqvz bytes lines quiet verbose",
    "wc": "Lclmw bytes chars lines max-line-length words",
}
_IN_SHELL = frozenset(("echo", "false", "pwd", "true"))


def only_reads(command: SimpleCommand, workspace: Path) -> bool:
    """True if it certainly reads nothing outside the workspace, writes nothing and runs nothing else.

    Expects literal words: the caller has checked that the line is plain.
    """
    if command.through or not all(word.is_fixed for word in command.words):
        return False
    if not _is_systems(command, workspace):
        return False
    if command.name in _PRINTERS:
        return True
    options = _READERS.get(command.name)
    if options is None:
        return False
    short, *long = options.split() if options else ("",)
    words = command.arguments
    if command.name == "diff" and any(os.path.isdir(workspace / word) for word in words):
        return False  # it would read the files in that folder, and follow links among them
    return all(
        _is_listed(word, short, long) if word.startswith("-") and word != "-" else is_inside(word, workspace)
        for word in words
    )


def is_reader(name: str) -> bool:
    """True for a program that reads or prints, and so opens no connection."""
    return name in _PRINTERS or name in _READERS


def is_inside(text: str, workspace: Path) -> bool:
    """True if the path certainly stays in the workspace, links included."""
    if text.startswith("~") or ".." in text.split("/") or "\0" in text:
        return False
    return _is_below(workspace / text, workspace)


def _is_listed(word: str, short: str, long: list[str]) -> bool:
    if word.startswith("--"):
        return word[2:].partition("=")[0] in (*long, "help", "version")
    found = re.fullmatch(r"-([A-Za-z]*)([^A-Za-z/]*)", word)  # the letters, then a number or a delimiter
    return found is not None and set(found[1]) <= set(short)


def _is_systems(command: SimpleCommand, workspace: Path) -> bool:
    """True if it is the system's program of that name, not one from the workspace."""
    name = command.words[0].text
    if name in _IN_SHELL:
        return True
    for folder in [""] if os.path.isabs(name) else os.environ.get("PATH", os.defpath).split(os.pathsep):
        program = os.path.join(folder, name)
        if not os.path.isabs(program):
            return False  # it depends on the folder in which the command runs
        if os.access(program, os.X_OK):
            places = (os.path.dirname(program), program)
            return not any(_is_below(place, workspace) for place in places)
    return False


def _is_below(path: str | Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
