"""Imports the conversations of an export one by one, and reports what came of each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from enum import StrEnum
from typing import Final

import anyio.to_thread
import msgspec

from everturn.domain.errors import AlreadyImported, BadImport, Gone, NotFound
from everturn.domain.messages import Attachment
from everturn.domain.store import Store
from everturn.domain.store_values import ImportedSession
from everturn.importers.session import StoredFiles, count_dropped, session_id_of, session_of
from everturn.importers.values import Conversation, ForeignFile, History, Unreadable

FILE_BYTES_MAX: Final = 50_000_000
_NOTES_MAX: Final = 20

Described = Callable[[str, bytes], tuple[str, str]]
Prepared = Callable[[ImportedSession], ImportedSession]


class ImportOutcome(StrEnum):
    IMPORTED = "imported"
    PRESENT = "present"  # an earlier import brought it in
    DELETED = "deleted"  # an earlier import brought it in, and it was deleted here
    REFUSED = "refused"


class Imported(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one conversation. ``notes``: what did not come over, and why."""

    outcome: ImportOutcome
    foreign_id: str
    title: str
    session_id: str | None = None
    turns: int = 0
    messages: int = 0
    files: int = 0
    notes: tuple[str, ...] = ()


async def import_history(
    store: Store, owner: str, history: History, described: Described, prepared: Prepared = lambda made: made
) -> AsyncGenerator[Imported, None]:
    """Import every conversation whole or not at all, and none a second time.

    ``described`` gives a safe name and the media type of a file, from its name and its first bytes.
    ``prepared`` may change a session before it is stored. Raises what storing raises, such as DiskFull; what
    was imported until then stays.
    """
    conversations = iter(history)
    while True:
        found = await anyio.to_thread.run_sync(next, conversations, None)
        if found is None:
            return
        if isinstance(found, Unreadable):
            yield Imported(ImportOutcome.REFUSED, found.id, found.title, notes=(found.why,))
        else:
            yield await _Import(store, owner, described, prepared).run(found)


class _Import:
    def __init__(self, store: Store, owner: str, described: Described, prepared: Prepared) -> None:
        self._store = store
        self._owner = owner
        self._described = described
        self._prepared = prepared
        self._notes: list[str] = []

    async def run(self, conversation: Conversation) -> Imported:
        session_id = session_id_of(conversation)
        told = Imported(
            ImportOutcome.PRESENT, conversation.id, conversation.title, session_id, notes=conversation.notes
        )
        present = await self._present(session_id)
        if present is not None:
            return msgspec.structs.replace(told, outcome=present)
        try:
            files = await self._store_files(conversation)
            made = self._prepared(session_of(self._owner, conversation, files))
            await self._store.transcript.import_session(self._owner, made)
        except AlreadyImported:
            return told
        except BadImport as error:
            why = (error.message,)
            return msgspec.structs.replace(told, outcome=ImportOutcome.REFUSED, session_id=None, notes=why)
        left_out = count_dropped(conversation)
        if left_out:
            self._notes.append(f"{left_out} messages of other versions of an answer were left out.")
        return msgspec.structs.replace(
            told,
            outcome=ImportOutcome.IMPORTED,
            turns=len(made.turns),
            messages=len(made.messages),
            files=len(files),
            notes=_first((*conversation.notes, *self._notes)),
        )

    async def _present(self, session_id: str) -> ImportOutcome | None:
        """Asked before files are stored; the transaction that imports asks again."""
        try:
            await self._store.sessions.get(self._owner, session_id)
        except NotFound:
            return None
        except Gone:
            return ImportOutcome.DELETED
        return ImportOutcome.PRESENT

    async def _store_files(self, conversation: Conversation) -> StoredFiles:
        stored: StoredFiles = {}
        for message in conversation.messages:
            for place, file in enumerate(message.files):
                attachment = await self._store_file(file)
                if attachment is not None:
                    stored[message.id, place] = attachment
        return stored

    async def _store_file(self, file: ForeignFile) -> Attachment | None:
        if file.read is None:
            self._notes.append(f"The file {file.name} is not in the export.")
            return None
        try:
            content = await anyio.to_thread.run_sync(file.read)
        except (BadImport, OSError) as error:
            self._notes.append(f"The file {file.name} cannot be read: {error}")
            return None
        if len(content) > FILE_BYTES_MAX:
            self._notes.append(f"The file {file.name} is larger than {FILE_BYTES_MAX // 1_000_000} MB.")
            return None
        name, media_type = self._described(file.name, content)
        kept = await self._store.files.put(self._owner, name, media_type, content)
        return Attachment(kept.id, kept.name, kept.media_type, kept.size)


def _first(notes: tuple[str, ...]) -> tuple[str, ...]:
    if len(notes) <= _NOTES_MAX:
        return notes
    return (*notes[:_NOTES_MAX], f"{len(notes) - _NOTES_MAX} more.")
