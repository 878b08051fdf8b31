"""Which names of a workspace a checkpoint leaves out, and why.

Ignore files come from projects and from tools, so a hostile pattern must not stop the server: patterns are
matched one path component at a time, each in linear time (``fnmatch`` compiles ``*`` to atomic groups).
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from everturn.domain.trees import Reason
from everturn.tools.temporary_files import is_temporary

DEPENDENCY_FOLDERS: Final = frozenset(
    {b"node_modules", b"bower_components", b".venv", b"venv", b".tox", b".nox", b"site-packages"}
)
CACHE_FOLDERS: Final = frozenset(
    {
        b"__pycache__",
        b".cache",
        b".mypy_cache",
        b".pytest_cache",
        b".ruff_cache",
        b".npm",
        b".gradle",
        b".parcel-cache",
        b".turbo",
        b".ipynb_checkpoints",
    }
)
CACHE_TAG: Final = b"CACHEDIR.TAG"
_SIGNATURE: Final = b"Signature: 8a477f597d28d172789f06886806bc55"  # https://bford.info/cachedir/
_IGNORE_FILES: Final = (b".gitignore", b".ignore")
_RULES_MAX: Final = 1000  # each name is compared with each of them
_FILE_BYTES_MAX: Final = 200_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class IgnoreRule(msgspec.Struct, frozen=True):
    """One line of an ignore file. ``parts``: a pattern for each path component; None stands for ``**``."""

    parts: tuple[re.Pattern[str] | None, ...]
    includes: bool
    is_for_folders: bool
    base: tuple[str, ...]  # the folder of the ignore file

    def matches(self, path: tuple[str, ...], *, is_folder: bool) -> bool:
        if (self.is_for_folders and not is_folder) or path[: len(self.base)] != self.base:
            return False
        return _matches(self.parts, path[len(self.base) :])


def _matches(parts: Sequence[re.Pattern[str] | None], path: Sequence[str]) -> bool:
    """Follow every way to read the pattern at once: the cost is the product of the lengths, never more."""
    reached = {0}
    for name in path:
        after: set[int] = set()
        for at in _over_stars(parts, reached):
            if at < len(parts):
                part = parts[at]
                if part is None:
                    # "a/**" matches what is in a, not a itself: a final ** requires one more name.
                    after.update((at, at + 1) if at == len(parts) - 1 else (at,))
                elif part.match(name):
                    after.add(at + 1)
        reached = after
    return len(parts) in reached


def _over_stars(parts: Sequence[re.Pattern[str] | None], reached: Iterable[int]) -> set[int]:
    """``**`` may stand for no folder at all."""
    found = set()
    for at in reached:
        found.add(at)
        while at < len(parts) - 1 and parts[at] is None:
            at += 1
            found.add(at)
    return found


def parse_rule(line: str, base: tuple[str, ...] = ()) -> IgnoreRule | None:
    """A line in the syntax of .gitignore; None for a comment, an empty line or a broken pattern."""
    line = line.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    includes = line.startswith("!")
    line = line[1:] if includes else line
    is_for_folders = line.endswith("/")
    line = line.rstrip("/")
    if not line:
        return None
    names = line.lstrip("/").split("/")
    if "/" not in line:
        names = ["**", *names]
    try:
        parts = tuple(None if name == "**" else _compile(name) for name in names)
    except re.error:
        return None
    return IgnoreRule(parts, includes, is_for_folders, base)


def _compile(name: str) -> re.Pattern[str]:
    glob = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], name)
    return re.compile(fnmatch.translate(glob.replace("[^", "[!")))


class IgnoreRules:
    """What is left out in one folder. ``digest`` changes with the rules, so that the folder is scanned
    again."""

    def __init__(self, rules: tuple[IgnoreRule, ...], digest: str, *, is_project: bool) -> None:
        self._rules = rules
        self._is_project = is_project
        self.digest = digest

    @classmethod
    def of_workspace(
        cls, patterns: Sequence[str] = (), *, is_project: bool = False, root: int | None = None
    ) -> IgnoreRules:
        """Rules at the top of a workspace. ``patterns`` come from the settings; ``root`` is a project's
        folder."""
        own = "\n".join(patterns).encode()
        rules = cls((), "", is_project=is_project)._with(own, ())
        if is_project and root is not None:
            rules = rules._with(_git_exclude(root), ())
        return rules

    def inside(self, folder: int, path: bytes) -> IgnoreRules:
        """Rules for what lies in a folder: its own ignore files are added. Only a project's are obeyed."""
        if not self._is_project:
            return self
        base = _components(path)
        rules = self
        for name in _IGNORE_FILES:
            rules = rules._with(_read(folder, name), base)
        return rules

    def reason(self, path: bytes, name: bytes, *, is_folder: bool) -> Reason | None:
        """Why this path is left out; None if it is not."""
        if is_folder and name in DEPENDENCY_FOLDERS:
            return Reason.DEPENDENCIES
        if is_folder and name in CACHE_FOLDERS:
            return Reason.CACHE
        if self._is_project and name == b".git":
            return Reason.GIT
        if not is_folder and is_temporary(name):
            return Reason.PARTIAL
        if self._rules:
            names = _components(path)
            for rule in reversed(self._rules):  # the last one that matches decides
                if rule.matches(names, is_folder=is_folder):
                    return None if rule.includes else Reason.IGNORED
        return None

    def _with(self, text: bytes, base: tuple[str, ...]) -> IgnoreRules:
        if not text:
            return self
        lines = text.decode("utf-8", "surrogateescape").splitlines()
        found = [rule for rule in (parse_rule(line, base) for line in lines) if rule is not None]
        digest = hashlib.sha256(b"\0".join((self.digest.encode(), repr(base).encode(), text))).hexdigest()
        return IgnoreRules((*self._rules, *found)[:_RULES_MAX], digest, is_project=self._is_project)


def is_cache(folder: int, names: Iterable[bytes]) -> bool:
    """True if a program marked the folder as a cache that can be rebuilt."""
    return CACHE_TAG in names and _read(folder, CACHE_TAG).startswith(_SIGNATURE)


def _components(path: bytes) -> tuple[str, ...]:
    return tuple(path.decode("utf-8", "surrogateescape").split("/")) if path else ()


def _git_exclude(root: int) -> bytes:
    """.git/info/exclude, opened folder by folder: neither may be a link to another place."""
    handles: list[int] = []
    try:
        for name in (b".git", b"info"):
            handles.append(os.open(name, _FOLDER, dir_fd=handles[-1] if handles else root))
        return _read(handles[-1], b"exclude")
    except OSError:
        return b""  # there is none, or it is not a plain folder
    finally:
        for handle in handles:
            os.close(handle)


def _read(folder: int, name: bytes) -> bytes:
    """The beginning of a small file; empty if it is not there, not a file or not readable."""
    try:
        handle = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b""
        return os.read(handle, _FILE_BYTES_MAX)
    finally:
        os.close(handle)
