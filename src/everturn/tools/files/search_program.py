"""Lists and searches files with ripgrep's rules. Runs as a separate program, standard library only.

It is a child process because a pattern from outside can take for ever and blocks the interpreter while it
does: a child can be killed. It reads one JSON request from stdin and writes one JSON answer.

The rules: .gitignore, .ignore and .git/info/exclude are obeyed, hidden and binary files are left out, links
are not followed; ``everything`` turns the first two off. Search is case-sensitive unless requested otherwise.
Two things differ from ripgrep on purpose: a glob never brings back an ignored file, and the CR
of a CRLF is not part of its line.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

_JsonObject = dict[str, Any]  # as it was decoded; this program imports nothing of ours
_LINE_CHARS_MAX = 500
_FILE_BYTES_MAX = 32 * 1024 * 1024
_BINARY_PROBE_BYTES = 8192
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class GitignoreRule(NamedTuple):
    """One line of a .gitignore: what it matches, and whether it includes instead of excludes."""

    pattern: re.Pattern[str]
    is_negated: bool
    is_for_folders: bool
    base: str  # the folder of the .gitignore, with a slash at its end, or empty


def translate(glob: str) -> str:
    """A glob of .gitignore as a regular expression: ** crosses folders, * and ? do not."""
    out = ""
    at = 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out += "(?:.*/)?"
            at += 3
            continue
        if glob.startswith("/**", at) and at + 3 == len(glob):
            out += "/.+"
            at += 3
            continue
        if char == "*":
            while at + 1 < len(glob) and glob[at + 1] == "*":
                at += 1  # several stars in a row mean the same as one
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[":
            end = glob.find("]", at + 2)
            if end < 0:
                out += r"\["
            else:
                inner = glob[at + 1 : end].replace("\\", "\\\\")
                out += "[" + ("^" + inner[1:] if inner[0] in "!^" else inner) + "]"
                at = end
        elif char == "{":
            end = glob.find("}", at)
            if end < 0:
                out += r"\{"
            else:
                out += "(?:" + "|".join(translate(part) for part in glob[at + 1 : end].split(",")) + ")"
                at = end
        elif char == "\\" and at + 1 < len(glob):
            at += 1
            out += re.escape(glob[at])
        else:
            out += re.escape(char)
        at += 1
    return out


def rule_of(line: str, base: str) -> GitignoreRule | None:
    line = line.rstrip("\n\r")
    if line.endswith(" ") and not line.endswith("\\ "):
        line = line.rstrip(" ")
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    line = line[1:] if is_negated else line
    is_for_folders = line.endswith("/")
    line = line.rstrip("/")
    is_anchored = "/" in line
    line = line.lstrip("/")
    if not line:
        return None
    prefix = "" if is_anchored else "(?:.*/)?"
    try:
        return GitignoreRule(
            re.compile(prefix + translate(line) + r"\Z", re.S), is_negated, is_for_folders, base
        )
    except re.error:
        return None  # git also ignores a rule that it cannot parse


def is_ignored(path: str, is_folder: bool, rules: list[GitignoreRule]) -> bool:
    """The last rule that matches decides."""
    for rule in reversed(rules):
        if rule.is_for_folders and not is_folder:
            continue
        if path.startswith(rule.base) and rule.pattern.match(path[len(rule.base) :]):
            return not rule.is_negated
    return False


def open_beneath(root: int, path: str) -> int:
    """Open a folder beneath the root without following links."""
    fd = os.dup(root)
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            raise OSError("the path leads upwards")
        inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    return fd


def rules_in(folder: int, base: str) -> list[GitignoreRule]:
    rules = []
    for name in (".gitignore", ".ignore"):
        rules += rules_of_file(folder, name, base)
    return rules


def rules_of_file(folder: int, name: str, base: str) -> list[GitignoreRule]:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return []
    with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
        found = [rule_of(line, base) for line in file.read(1_000_000).splitlines()]
    return [rule for rule in found if rule is not None]


class Walk:
    """Every file beneath the root that the rules do not exclude, sorted by path within each folder."""

    def __init__(self, root: int, everything: bool) -> None:
        self._root = root
        self._everything = everything

    def files(self, start: str, depth_max: int | None) -> Iterator[tuple[str, os.stat_result, int]]:
        """(path, stat, handle of its folder). Folders are included, before their content."""
        rules = self._rules_above(start)
        folder = open_beneath(self._root, start)
        base = "" if start in ("", ".") else start.rstrip("/") + "/"
        yield from self._folder(folder, base, rules, depth_max)

    def _rules_above(self, start: str) -> list[GitignoreRule]:
        if self._everything:
            return []
        rules = rules_of_file(self._root, ".git/info/exclude", "")
        base = ""
        for part in ("", *[part for part in start.split("/") if part not in ("", ".")][:-1]):
            base += part + "/" if part else ""
            fd = open_beneath(self._root, base)
            rules += rules_in(fd, base)
            os.close(fd)
        return rules

    def _folder(
        self, folder: int, base: str, rules: list[GitignoreRule], depth: int | None
    ) -> Iterator[tuple[str, os.stat_result, int]]:
        try:
            if not self._everything and base:
                rules = rules + rules_in(folder, base)
            for name in sorted(os.listdir(folder)):
                yield from self._entry(folder, name, base, rules, depth)
        finally:
            os.close(folder)

    def _entry(
        self, folder: int, name: str, base: str, rules: list[GitignoreRule], depth: int | None
    ) -> Iterator[tuple[str, os.stat_result, int]]:
        path = base + name
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return  # removed meanwhile, or no permission
        is_folder = stat.S_ISDIR(found.st_mode)
        if not self._everything and (name.startswith(".") or is_ignored(path, is_folder, rules)):
            return
        yield path, found, folder
        if is_folder and (depth is None or depth > 1):
            try:
                inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=folder)
            except OSError:
                return  # no permission, or no longer a folder
            yield from self._folder(inner, path + "/", rules, None if depth is None else depth - 1)


def glob_filter(globs: list[str]) -> list[GitignoreRule]:
    """Globs as for ripgrep's -g: a leading ! excludes; of several that match, the last one decides."""
    return [rule for rule in (rule_of(glob, "") for glob in globs) if rule is not None]


def is_wanted(path: str, globs: list[GitignoreRule]) -> bool:
    if not globs:
        return True
    for rule in reversed(globs):
        if rule.pattern.match(path):
            return not rule.is_negated
    return all(rule.is_negated for rule in globs)


def read(folder: int, name: str) -> bytes | None:
    """The content of a text file; None if the file is binary, too large or not readable."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or os.fstat(fd).st_size > _FILE_BYTES_MAX:
            return None
        content = file.read()
    is_text = b"\0" not in content[:_BINARY_PROBE_BYTES] or content.startswith(_UTF_16_MARKS)
    return content if is_text else None


def find_matches(content: bytes, pattern: re.Pattern[str], context: int) -> list[tuple[int, str, bool]]:
    """The matching lines and their neighbours, as (line number, line, is it a match)."""
    encoding = "utf-16" if content.startswith(_UTF_16_MARKS) else "utf-8-sig"
    lines = content.decode(encoding, "replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    hits = [at for at, line in enumerate(lines) if pattern.search(line.rstrip("\r"))]
    near = {n for at in hits for n in range(max(0, at - context), min(len(lines), at + context + 1))}
    found = set(hits)
    return [(at + 1, lines[at].rstrip("\r")[:_LINE_CHARS_MAX], at in found) for at in sorted(near)]


def show_path(path: str) -> str:
    """The path as text. Bytes that are not UTF-8 become marks; such a path cannot be used."""
    return os.fsencode(path).decode("utf-8", "replace")


def search(request: _JsonObject, root: int) -> _JsonObject:
    flags = re.IGNORECASE if request["ignore_case"] else 0
    source = re.escape(request["pattern"]) if request["literal"] else request["pattern"]
    pattern = re.compile(source, flags)
    globs = glob_filter(request["globs"])
    files, count, limit = [], 0, request["limit"]
    for path, found, folder in Walk(root, request["everything"]).files(request["path"], None):
        if not stat.S_ISREG(found.st_mode) or not is_wanted(path, globs):
            continue
        content = read(folder, os.path.basename(path))
        lines = find_matches(content, pattern, request["context"]) if content else []
        if lines:
            room = limit - count
            files.append({"path": show_path(path), "lines": lines[:room]})
            count += len(lines)
            if count > limit:
                return {"files": files, "is_cut": True}
    return {"files": files, "is_cut": False}


def list_files(request: _JsonObject, root: int) -> _JsonObject:
    globs = glob_filter(request["globs"])
    entries: list[_JsonObject] = []
    for path, found, _ in Walk(root, request["everything"]).files(request["path"], request["depth"]):
        is_folder = stat.S_ISDIR(found.st_mode)
        if globs and (is_folder or not is_wanted(path, globs)):
            continue
        if len(entries) >= request["limit"]:
            return {"entries": entries, "is_cut": True}
        kind = "folder" if is_folder else "link" if stat.S_ISLNK(found.st_mode) else "file"
        entries.append({"path": show_path(path), "kind": kind, "size": found.st_size})
    return {"entries": entries, "is_cut": False}


def main() -> None:
    request = json.load(sys.stdin)
    try:
        root = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        answer = search(request, root) if request["what"] == "search" else list_files(request, root)
    except re.error as error:
        answer = {"error": f"The pattern is not a valid regular expression: {error}."}
    except OSError as error:
        answer = {"error": f"{request['path']}: {error.strerror or error}."}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
