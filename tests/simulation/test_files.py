"""Random edits, turns, undo, redo, select and branches against a plain model: a folder is a dict of files."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everturn.domain.errors import FilesConflict, NothingToDo
from everturn.domain.working_copies import FileChoices, FilesChoice
from everturn.store import open_store
from tests.file_sessions import OWNER, FileSessions, open_file_sessions, put_files, request
from tests.trees import QuickDisk

NAMES = ("a", "b", "folder/a", "folder/b")
TEXTS = ("one", "two", "three")
Files = dict[str, str]

files = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS), min_size=1, max_size=3)
step = st.one_of(
    st.tuples(st.just("turn"), files),
    st.tuples(st.just("edit"), files),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["undo", "redo"]), st.sampled_from([None, *FilesChoice])),
    st.tuples(st.sampled_from(["branch", "chat"]), st.none()),
)


class Node:
    """A turn of the model: what was there before its first change, and what is there after it."""

    def __init__(self, parent: Node | None, before: Files | None, after: Files | None) -> None:
        self.parent = parent
        self.before = before  # None: it changed nothing
        self.after = after


def is_restored(name: str, text: str, wanted: Files) -> bool:
    """True for a copy of a file that gets the same text back."""
    original = re.sub(r" \(mine( \d+)?\)$", "", name)
    return name not in wanted and original != name and wanted.get(original) == text


class Model:
    """One session: a folder, what was last recorded of it, and the turns on the path."""

    def __init__(self) -> None:
        self.folder: Files = {}
        self.last: Files = {}
        self.path: list[Node] = []
        self.undone: list[Node] = []
        self.users: dict[frozenset[tuple[str, str]], Files] = {}  # what a user changed: what there was before

    def made(self) -> Files:
        """What calls and restores left, without what the user changed: that is never overwritten unasked, also if
        a move has brought it back."""
        return self.users.get(frozenset(self.last.items()), self.last)

    def record_users(self, found: Files) -> None:
        if found != self.last:
            self.users[frozenset(found.items())] = dict(self.made())

    def turn(self, changes: Files) -> None:
        before = dict(self.folder)
        self.record_users(before)
        if self.last != before and self.path:
            self.path[-1].after = before
        self.folder |= changes
        is_changed = self.folder != before
        after = dict(self.folder) if is_changed else None
        if is_changed:
            self.users.pop(frozenset(self.folder.items()), None)
        self.path.append(Node(self.path[-1] if self.path else None, before if is_changed else None, after))
        self.last = dict(self.folder)
        self.undone = []

    def chat(self) -> None:
        """A turn without a call: nothing looks at the files."""
        self.path.append(Node(self.path[-1] if self.path else None, None, None))
        self.undone = []

    def undo(self, choice: FilesChoice | None) -> bool:
        """False: it is refused because of a conflict."""
        node = self.path[-1]
        if not self._move(node.before, choice, node):
            return False
        self.undone.append(self.path.pop())
        return True

    def redo(self, choice: FilesChoice | None) -> bool:
        node = self.undone[-1]
        if not self._move(node.after, choice, self.path[-1] if self.path else None):
            return False
        self.path.append(self.undone.pop())
        return True

    def _move(self, wanted: Files | None, choice: FilesChoice | None, left: Node | None) -> bool:
        if choice is FilesChoice.KEEP or wanted is None or wanted == self.last:
            return True
        present, made = dict(self.folder), self.made()
        conflicts = {
            name: text
            for name, text in present.items()
            if made.get(name) != text and wanted.get(name) != text and not is_restored(name, text, wanted)
        }
        if conflicts and choice is None:
            return False
        self.record_users(present)
        if present != self.last and left is not None:
            left.after = present
        self.folder = dict(wanted)
        if choice is FilesChoice.BOTH:
            for name, text in conflicts.items():
                number, free = 1, f"{name} (mine)"
                while free in present or free in wanted:
                    number += 1
                    free = f"{name} (mine {number})"
                self.folder[free] = text
        self.last = dict(wanted)
        return True

    def branch(self) -> Model:
        """The copy begins with what is in the folder; its turns have files of their own."""
        copy = Model()
        copy.folder, copy.last, copy.users = dict(self.folder), dict(self.folder), dict(self.users)
        if self.folder != self.last:
            copy.users[frozenset(self.folder.items())] = dict(self.made())
        for node in self.path:
            copy.path.append(Node(copy.path[-1] if copy.path else None, node.before, node.after))
        if copy.path and self.folder != self.last and self.folder not in self._recorded():
            copy.path[-1].after = dict(self.folder)
        return copy

    def _recorded(self) -> list[Files | None]:
        return [files for node in self.path for files in (node.before, node.after)]


class Run:
    """The same steps in the real thing and in the model."""

    def __init__(self, s: FileSessions, session: Any) -> None:
        self.s = s
        self.session = session
        self.model = Model()

    async def step(self, what: str, value: Any) -> None:
        engine, session_id, model = self.s.h.engine, self.session.id, self.model
        folder = self.s.folder(self.session)
        if what == "turn":
            await self.s.turn(self.session, **value)
            model.turn(value)
        elif what == "chat":
            await self.s.turn(self.session)
            model.chat()
        elif what == "edit":
            put_files(folder, value)
            model.folder |= value
        elif what == "delete":
            (folder / value).unlink(missing_ok=True)
            model.folder.pop(value, None)
        elif what == "branch" and model.path:
            self.session = await engine.branch(OWNER, session_id, None, request())
            self.model = model.branch()
            await engine.moves.finish(OWNER, self.session.id)
        elif what in ("undo", "redo"):
            move, expected = getattr(engine, what), getattr(model, what)
            is_possible = bool(model.path if what == "undo" else model.undone)
            try:
                await move(OWNER, session_id, request(), FileChoices(value))
                assert is_possible, f"{what} did something"
                assert expected(value), f"{what} should have been refused"
            except NothingToDo:
                assert not is_possible
            except FilesConflict:
                assert not expected(value), f"{what} should not have been refused"
        assert self.s.files(self.session) == self.model.folder, what


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Any]:
    async with open_store(f"sqlite://{home / 'everturn.db'}", data_dir=home) as store:
        yield store


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(step, min_size=3, max_size=12))
def test_files_follow_random_moves_as_in_a_plain_model(steps: list[tuple[str, Any]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as name:
            home = Path(name).resolve()
            async with opened(home) as store, open_file_sessions(store, home) as s:
                session = await s.h.new_session()
                s.folder(session).mkdir(parents=True)
                case = Run(s, session)
                for what, value in steps:
                    await case.step(what, value)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("everturn.workspace.restore.DiskSync", QuickDisk)
        anyio.run(run)
