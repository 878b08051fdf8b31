"""Finds the files of a turn that its answer names or links to. They are sent after the answer."""

from __future__ import annotations

import logging
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import anyio

from everturn.delivery.context import AccountContext
from everturn.delivery.parts import render_parts
from everturn.domain.checkpoints import At, ChangeKind, FileChange
from everturn.domain.delivery import NewPart, ReplyDue
from everturn.domain.errors import FileMissing, Refused, StorageAway
from everturn.domain.media import sniff_media_type
from everturn.domain.store_values import FileKind
from everturn.workspace import TreeView, Versions

_FILES_MAX = 10
_HEAD_BYTES = 512
# The target of a Markdown link or image: [text](target), [text](<target> "title").
_LINK = re.compile(r"\]\(\s*(?:<([^<>\n]+)>|([^()\s]+(?:\([^()\s]*\)[^()\s]*)*))[^)\n]*\)")
_BLOCK = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)  # of code: what is in it is not said
_log = logging.getLogger("everturn.delivery")


def find_answered_files(answer: str, changes: tuple[FileChange, ...]) -> list[FileChange]:
    """Return the files to send with the answer.

    These are files that the turn created or changed and the answer links to, and files that the turn created
    and the answer names. Existing files that are only named are not sent: an answer about a program names
    many.
    """
    made = {change.path: change for change in changes if change.what is not ChangeKind.DELETED}
    found: dict[str, FileChange] = {}
    for match in _LINK.finditer(answer):
        path = _find(unquote(match[1] or match[2]), made)
        if path is not None:
            found[path] = made[path]
    new = [change for change in made.values() if change.what is ChangeKind.ADDED]
    for change in _find_named(_BLOCK.sub("", answer), new):
        found.setdefault(change.path, change)
    return list(found.values())


def _find_named(text: str, new: Sequence[FileChange]) -> list[FileChange]:
    """Return the files whose path or unique name occurs in the text, in order of occurrence."""
    names = Counter(PurePosixPath(change.path).name for change in new)
    places: list[tuple[int, FileChange]] = []
    for change in new:
        name = PurePosixPath(change.path).name
        wanted = [change.path, *([name] if names[name] == 1 and "." in name.strip(".") else [])]
        starts = [match.start() for word in wanted if (match := _as_word(word).search(text))]
        if starts:
            places.append((min(starts), change))
    return [change for _, change in sorted(places, key=lambda place: (place[0], place[1].path))]


def _as_word(name: str) -> re.Pattern[str]:
    """Match the name as a word: not the end of another path, nor the beginning of a longer name."""
    return re.compile(rf"(?<![\w./-])(?:\./)?{re.escape(name)}(?![\w/-]|\.\w)")


def _find(target: str, made: dict[str, FileChange]) -> str | None:
    target = target.removeprefix("sandbox:").removeprefix("file://").removeprefix("./")
    if not target.startswith("/"):
        return target if target in made else None
    return next((path for path in made if target.endswith("/" + path)), None)


class FileParts:
    def __init__(self, context: AccountContext) -> None:
        self._context = context
        self._store = context.services.store

    async def parts(self, due: ReplyDue) -> list[NewPart]:
        """Return a part for each file, and a line about each file that cannot be sent."""
        if due.files is None or not self._context.platform.features.files:
            return []
        found: list[NewPart] = []
        lines: list[str] = []
        for change in find_answered_files(due.answer, due.files.changes)[:_FILES_MAX]:
            limit = self._context.settings.file_bytes_max
            if change.size > limit:
                lines.append(
                    f"*{change.path} is not sent: it has {change.size:,} bytes, more than {limit:,}.*"
                )
                continue
            try:
                found.append(NewPart(file_id=await self._store_copy(due, change.path)))
            except (Refused, FileMissing, StorageAway) as error:
                _log.info("account %s: %s of %s: %s", self._context.account, change.path, due.turn_id, error)
                lines.append(f"*{change.path} is not sent: it could not be read.*")
        if lines:
            found += render_parts(self._context.platform, "\n".join(lines))
        return found

    async def _store_copy(self, due: ReplyDue, path: str) -> str:
        """Store a copy of the file as of the end of the turn: it may change before it is sent."""
        owner, session_id = due.chat.owner, due.session_id
        tree = await self._store.checkpoints.tree_at(owner, session_id, At(due.turn_id, is_made=True))
        opened = await TreeView(Versions(self._store.blobs), tree).open(path)
        head = b""
        with tempfile.TemporaryDirectory(prefix="everturn-made-") as folder:
            copy = Path(folder, "file")
            async with await anyio.open_file(copy, "wb") as out:
                async for piece in opened.read(0, opened.size):
                    head = head or piece[:_HEAD_BYTES]
                    await out.write(piece)
            name = PurePosixPath(path).name
            return await self._put(due, name, sniff_media_type(head, name), copy)

    async def store_text(self, due: ReplyDue, name: str, text: str) -> str:
        """Store a text as a file of the session; return its id."""
        with tempfile.TemporaryDirectory(prefix="everturn-made-") as folder:
            copy = Path(folder, "file")
            await anyio.Path(copy).write_text(text, encoding="utf-8")
            return await self._put(due, name, "text/markdown", copy)

    async def _put(self, due: ReplyDue, name: str, media_type: str, path: Path) -> str:
        owner, session_id = due.chat.owner, due.session_id
        stored = await self._store.files.put(
            owner, name, media_type, path, kind=FileKind.ARTIFACT, session_id=session_id
        )
        return stored.id
