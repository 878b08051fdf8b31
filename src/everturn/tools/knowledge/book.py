"""The list of knowledge, stored as records: each has a folder or uploads, and who may search it.

The records belong to the system and name their owner, so that garbage collection finds everyone's uploads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from everturn.domain.blobs import Blobs
from everturn.domain.errors import Invalid, NotFound
from everturn.domain.ids import Ids
from everturn.domain.machine import Machine
from everturn.domain.media import safe_name
from everturn.domain.store import Records

SYSTEM: Final = "system"
KNOWLEDGE: Final = "knowledge"
FILE: Final = "knowledge_file"
NAME_CHARS_MAX = 80
COUNT_MAX = 100
UPLOADS_MAX = 2_000


class Knowledge(msgspec.Struct, frozen=True):
    """One collection of documents.

    Without a ``folder`` it holds uploads. ``machine`` is the only one that has the folder. ``is_own``: the
    user declared the contents to be their own words, so they do not count as text from outside. ``profiles``
    and ``sessions`` may search it; ``is_for_all`` lets every session of the owner search it.
    """

    id: str
    owner: str
    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    created_at: int
    folder: str | None = None
    machine: str | None = None
    is_own: bool = False
    is_for_all: bool = False
    profiles: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()

    def is_used_by(self, session_id: str, profile: str | None) -> bool:
        return self.is_for_all or session_id in self.sessions or (profile or "default") in self.profiles


class KnowledgeFile(msgspec.Struct, frozen=True):
    """An upload, whose bytes are stored as a blob."""

    name: str
    sha256: str
    size: int
    added_at: int


class KnowledgeBook:
    def __init__(self, records: Records, blobs: Blobs, machine: Machine) -> None:
        self._records = records
        self._blobs = blobs
        self.machine = machine

    async def all(self) -> list[Knowledge]:
        """Return the knowledge of all owners, oldest first."""
        found = await self._records.list(SYSTEM, KNOWLEDGE)
        return [msgspec.convert(value, Knowledge) for _, value in sorted(found.items())]

    async def of_owner(self, owner: str) -> list[Knowledge]:
        return [one for one in await self.all() if one.owner == owner]

    async def get(self, owner: str, knowledge_id: str) -> Knowledge:
        """Raises NotFound."""
        value = await self._records.get(SYSTEM, KNOWLEDGE, knowledge_id)
        found = None if value is None else msgspec.convert(value, Knowledge)
        if found is None or found.owner != owner:
            raise NotFound("knowledge", knowledge_id)
        return found

    async def add(self, ids: Ids, given: Knowledge) -> Knowledge:
        """Store new knowledge and give it an id.

        Raises Invalid if there is too much, or the name is taken.
        """
        known = await self.of_owner(given.owner)
        if len(known) >= COUNT_MAX:
            raise Invalid(f"There are {COUNT_MAX} already.", hint="Delete one, or add the files to another.")
        machine = self.machine.text if given.folder is not None else None
        made = msgspec.structs.replace(given, id=ids.make("kno"), machine=machine)
        _check_name(made, known)
        await self._records.put(SYSTEM, KNOWLEDGE, made.id, msgspec.to_builtins(made))
        return made

    async def change(self, changed: Knowledge) -> Knowledge:
        """Raises NotFound, Invalid."""
        _check_name(changed, [one for one in await self.of_owner(changed.owner) if one.id != changed.id])
        if not await self._records.replace(SYSTEM, KNOWLEDGE, changed.id, msgspec.to_builtins(changed)):
            raise NotFound("knowledge", changed.id)
        return changed

    async def use_in(self, owner: str, profile: str, wanted: Collection[str]) -> None:
        """Let the profile search exactly the knowledge with these ids, besides what is for all.

        Raises NotFound.
        """
        known = {one.id: one for one in await self.of_owner(owner)}
        for missing in (one for one in wanted if one not in known):
            raise NotFound("knowledge", missing)
        for one in known.values():
            if (one.id in wanted) != (profile in one.profiles):
                profiles = [name for name in one.profiles if name != profile]
                profiles += [profile] if one.id in wanted else []
                changed = msgspec.structs.replace(one, profiles=tuple(profiles))
                await self._records.replace(SYSTEM, KNOWLEDGE, one.id, msgspec.to_builtins(changed))

    async def delete(self, owner: str, knowledge_id: str) -> None:
        """Delete the knowledge and its uploads. A folder is not changed. Raises NotFound."""
        found = await self.get(owner, knowledge_id)
        await self._records.delete(SYSTEM, KNOWLEDGE, found.id)
        for file in await self.files(found):  # after a crash, ``sweep`` deletes the rest
            await self._records.delete(SYSTEM, FILE, f"{found.id}/{file.name}")

    async def sweep(self) -> int:
        """Delete the uploads of deleted knowledge; return how many."""
        known = {one.id for one in await self.all()}
        left = [name for name in await self._records.list(SYSTEM, FILE) if name.split("/")[0] not in known]
        for name in left:
            await self._records.delete(SYSTEM, FILE, name)
        return len(left)

    # --- uploads -----------------------------------------------------------------------------------

    async def files(self, knowledge: Knowledge) -> list[KnowledgeFile]:
        found = await self._records.list(SYSTEM, FILE)
        start = f"{knowledge.id}/"
        own = [value for name, value in sorted(found.items()) if name.startswith(start)]
        return [msgspec.convert(value, KnowledgeFile) for value in own]

    async def put_file(self, knowledge: Knowledge, name: str, content: Path, now_ms: int) -> KnowledgeFile:
        """Store an upload and replace one of the same name. Durable on return. Raises Invalid."""
        if knowledge.folder is not None:
            raise Invalid("This knowledge is a folder.", hint="Put the file into the folder.")
        name = safe_name(name)
        known = {file.name for file in await self.files(knowledge)}
        if name not in known and len(known) >= UPLOADS_MAX:
            raise Invalid(f"It holds {UPLOADS_MAX:,} files already.", hint="Use a folder for so many.")
        # Store the bytes first, so that no record names missing bytes.
        blob = await self._blobs.put(content)
        file = KnowledgeFile(name, blob.sha256, blob.size, now_ms)
        await self._records.put(SYSTEM, FILE, f"{knowledge.id}/{name}", msgspec.to_builtins(file))
        return file

    async def delete_file(self, knowledge: Knowledge, name: str) -> None:
        """Raises NotFound."""
        if not await self._records.delete(SYSTEM, FILE, f"{knowledge.id}/{name}"):
            raise NotFound("file", name)

    async def hashes(self) -> AsyncIterator[Sequence[str]]:
        """Yield the hashes of bytes that are in use, for garbage collection."""
        found = await self._records.list(SYSTEM, FILE)
        yield [value["sha256"] for value in found.values()]


def _check_name(knowledge: Knowledge, others: Sequence[Knowledge]) -> None:
    if not knowledge.name.strip():
        raise Invalid("Knowledge needs a name.", hint="A word or two.")
    if any(one.name.casefold() == knowledge.name.casefold() for one in others):
        raise Invalid(f"There is knowledge named {knowledge.name!r} already.", hint="Choose another name.")
