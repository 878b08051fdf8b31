"""Files of a project that Git runs or reads because a repository's settings name them.

Hooks in a folder of their own (``core.hooksPath``), further settings (``include.path``), programs. One that
is missing counts too: Git runs it as soon as it is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from everturn.tools.policy.git_config import named_paths
from everturn.tools.policy.small_files import git_folder, read_small_file

_HOOKS, _INCLUDE = "hookspath", "path"
_FILES_MAX = 20  # of settings that include each other
# Of the owner's own settings only this one is relative to the project.
_OWN = ("~/.gitconfig", "~/.config/git/config")


def named_files(repository: str, root: str) -> Iterator[str]:
    """The real paths in the project ``root`` that the settings of this repository (``…/.git``) name."""
    top = os.path.dirname(repository)
    waiting = _settings_of(repository)
    read: set[str] = set()
    while waiting and len(read) < _FILES_MAX:
        file = waiting.pop(0)
        if file in read:
            continue
        read.add(file)
        for key, word in named_paths(read_small_file(file) or b""):
            name = os.path.expanduser(word)
            if key == _INCLUDE:
                waiting.append(os.path.realpath(os.path.join(os.path.dirname(file), name)))
            for base in (top, os.path.dirname(file)):
                path = os.path.realpath(os.path.join(base, name))
                if _is_inside(path, root) and (
                    key in (_HOOKS, _INCLUDE) or "/" in name or os.path.isfile(path)
                ):
                    yield path
    for file in _OWN:
        for key, word in named_paths(read_small_file(os.path.expanduser(file)) or b""):
            path = os.path.realpath(os.path.join(top, os.path.expanduser(word)))
            if key == _HOOKS and _is_inside(path, root):
                yield path


def _settings_of(repository: str) -> list[str]:
    """The files of settings, also of a working tree whose repository is elsewhere."""
    folder = git_folder(repository)
    if folder is None:
        return []
    common = os.fsdecode((read_small_file(os.path.join(folder, "commondir")) or b"").strip())
    folders = [folder, os.path.realpath(os.path.join(folder, common))] if common else [folder]
    return [os.path.join(each, name) for each in folders for name in ("config", "config.worktree")]


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(os.path.realpath(root) + "/")
