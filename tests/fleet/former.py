"""The source of an earlier commit, with which the workers start before they are upgraded."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_HERE = Path(__file__).parents[2]
_PAGE = Path("src/everturn/web/page")


def before_newest_schema() -> str:
    """The commit before the newest schema: its workers must go on while another one migrates the database."""
    newest = sorted(_HERE.glob("src/everturn/store/sql/[0-9]*.postgresql.sql"))[-1]
    made = _git("log", "-1", "--diff-filter=A", "--format=%H", "--", str(newest)).strip()
    return f"{made}~1"


@contextmanager
def former_source(ref: str) -> Iterator[Path]:
    """A worktree of the commit, removed in the end. It gets this tree's page, which is built, not stored."""
    with TemporaryDirectory(prefix="everturn-former-") as folder:
        tree = Path(folder, "tree")
        _git("worktree", "add", "--detach", str(tree), ref)
        try:
            (tree / _PAGE).symlink_to(_HERE / _PAGE)
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def describe(ref: str) -> str:
    return _git("log", "-1", "--format=%h (%s)", ref).strip()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_HERE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
