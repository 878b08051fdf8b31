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


def is_harmless(content: bytes) -> bool:
    """True if every line of the file is understood and allowed. A doubtful one counts as harmful."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    section = ""
    for line in (line.strip(" \t\r") for line in text.split("\n")):
        if not line or line[0] in "#;":
            continue
        found = _SECTION.fullmatch(line)
        if found:
            section = found[1].lower()
            continue
        setting = _SETTING.fullmatch(line)
        if setting is None or line.endswith("\\") or not _is_allowed(section, setting[1].lower()):
            return False
    return True


def values(content: bytes) -> list[tuple[str, str]]:
    """The settings as (key, word of the value), to find those that name something in the project."""
    text = content.decode("utf-8", "replace")
    found = re.findall(r"^\s*(?:\[[^\]]*\]\s*)?([a-z][a-z0-9-]*)\s*=(.*)$", text, re.I | re.M)
    return [(key.lower(), word) for key, value in found for word in re.split(r"[\s\"'!;]+", value) if word]


def _is_allowed(section: str, key: str) -> bool:
    if section not in _HARMLESS:
        return False
    keys = _HARMLESS[section]
    return keys is None or key in keys
