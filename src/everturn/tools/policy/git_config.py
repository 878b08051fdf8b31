"""Which settings of a Git repository are harmless: they name things, and make Git run nothing."""

from __future__ import annotations

import re

_SECTION = re.compile(r'\[\s*([a-z0-9-]+)\s*(?:"([^"\\]*)")?\s*\]', re.I)
_SETTING = re.compile(r"([a-z][a-z0-9-]*)\s*(?:=\s*(.*))?", re.I)

# An allow-list: Git has some sixty settings that run a program, and each version adds others.
_HARMLESS = {
    "advice": None,
    "branch": {"remote", "merge", "rebase", "description", "vscode-merge-base"},
    "color": None,
    "commit": {"gpgsign", "verbose"},
    "core": {
        *("abbrev", "autocrlf", "bare", "eol", "filemode", "ignorecase", "logallrefupdates", "longpaths"),
        *("precomposeunicode", "quotepath", "repositoryformatversion", "safecrlf", "sparsecheckout"),
        *("sparsecheckoutcone", "symlinks", "untrackedcache", "worktree"),
    },
    "extensions": {"objectformat", "partialclone", "refstorage", "worktreeconfig"},
    "fetch": {"prune", "prunetags"},
    "gc": {"auto"},
    "index": {"version", "threads"},
    "init": {"defaultbranch"},
    "lfs": {"repositoryformatversion", "locksverify", "access"},
    "merge": {"conflictstyle", "ff"},
    "pull": {"ff", "rebase"},
    "push": {"autosetupremote", "default", "followtags"},
    "remote": {"fetch", "partialclonefilter", "promisor", "prune", "pushurl", "tagopt", "url"},
    "rerere": {"enabled"},
    "submodule": {"active", "branch", "url"},
    "tag": {"gpgsign"},
    "user": {"email", "name"},
}


Setting = tuple[str, str, str]  # section, key, value


def is_harmless(content: bytes, known: bytes = b"") -> bool:
    """True if every setting is understood and allowed, or is in ``known`` too. A doubtful one counts as
    harmful."""
    found, before = _settings(content), _settings(known) or ()
    if found is None:
        return content == known
    return all(_is_allowed(*setting[:2]) for setting in found if setting not in before)


def named_paths(content: bytes) -> list[tuple[str, str]]:
    """The words of all values that may name something Git runs or reads, with their keys."""
    text = content.decode("utf-8", "replace")
    section = ""
    found = []
    for line in text.split("\n"):
        parts = re.fullmatch(
            r"\s*(?:\[\s*([a-z0-9-]+)[^\]]*\])?\s*(?:([a-z][a-z0-9-]*)\s*=(.*))?", line, re.I
        )
        section = (parts[1] or section).lower() if parts else section
        if parts and parts[2] and not _is_allowed(section, parts[2].lower()):
            found += [(parts[2].lower(), word) for word in re.split(r"[\s\"'!;]+", parts[3]) if word]
    return found


def worktrees(content: bytes) -> list[str]:
    """The folders that the settings name for the repository's files."""
    return [value.strip('"') for _, key, value in _settings(content) or () if key == "worktree"]


def _settings(content: bytes) -> list[Setting] | None:
    """All settings; None if a line is not understood."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    section = ""
    found = []
    for line in (line.strip(" \t\r") for line in text.split("\n")):
        if not line or line[0] in "#;":
            continue
        header = _SECTION.fullmatch(line)
        if header:
            section = header[1].lower()
            continue
        setting = _SETTING.fullmatch(line)
        if setting is None or line.endswith("\\"):
            return None
        found.append((section, setting[1].lower(), setting[2] or ""))
    return found


def _is_allowed(section: str, key: str) -> bool:
    if section not in _HARMLESS:
        return False
    keys = _HARMLESS[section]
    return keys is None or key in keys
