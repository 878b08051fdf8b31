"""How skills are stored: versions as records, their bytes as blobs.

Each fact about a skill (found, trusted, declined, switched off) is a record of its own kind, so that two
workers that change different facts never overwrite each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from everturn.domain.blobs import Blobs
from everturn.domain.json_types import Json
from everturn.domain.skills import SkillFile, SkillVersion
from everturn.domain.store import Records
from everturn.skills.content import RawFile, SkillContent

SHARED: Final = "shared"  # owns the skills that all users of this server may use
FOUND: Final = "skill.found"  # the newest content
TRUSTED: Final = "skill.trusted"  # the content that the agent gets
EARLIER: Final = "skill.earlier"  # contents that were trusted before; the name ends with the digest
DECLINED: Final = "skill.declined"  # the digest of the declined content
OFF: Final = "skill.off"
BROKEN: Final = "skill.broken"  # why a folder is not a skill
SEEN: Final = "skill.seen"  # the digest of this machine's folder when last imported
USED: Final = "skill.used"  # the last turn that used it
_VERSIONS: Final = (FOUND, TRUSTED, EARLIER)
_WHOLE_BYTES_MAX: Final = 1 << 20  # larger blobs are read in pieces


class SkillShelf:
    def __init__(self, records: Records, blobs: Blobs) -> None:
        self._records = records
        self._blobs = blobs
        blobs.add_roots(self._roots)

    async def store(self, content: SkillContent, at: int, origin: str, project: str = "") -> SkillVersion:
        """Store the bytes and return the version that names them. The version itself is not stored yet."""
        stored = await self._blobs.put_many([file.content for file in content.files.values()])
        files = tuple(
            SkillFile(path, blob.sha256, blob.size, file.is_executable)
            for (path, file), blob in zip(content.files.items(), stored, strict=True)
        )
        return SkillVersion(content.name, content.description, content.digest, files, at, origin, project)

    async def put(self, owner: str, kind: str, name: str, version: SkillVersion) -> None:
        # Blobs that already exist are kept for another day, long enough to store the version.
        await self._blobs.find([file.sha256 for file in version.files])
        await self._records.put(owner, kind, name, msgspec.to_builtins(version))

    async def get(self, owner: str, kind: str, name: str) -> SkillVersion | None:
        value = await self._records.get(owner, kind, name)
        return None if value is None else _version(value)

    async def list(self, owner: str, kind: str) -> dict[str, SkillVersion]:
        found = await self._records.list(owner, kind)
        return {name: _version(value) for name, value in found.items()}

    async def load(self, version: SkillVersion) -> dict[str, RawFile]:
        """Return the bytes of its files. Raises BlobMissing, BlobDamaged, and what the store raises."""
        small = await self._blobs.read_small(
            [one.sha256 for one in version.files if one.size <= _WHOLE_BYTES_MAX]
        )
        files: dict[str, RawFile] = {}
        for one in version.files:
            content = small.get(one.sha256)
            if content is None:
                content = b"".join([piece async for piece in self._blobs.read(one.sha256)])
            files[one.path] = RawFile(content, one.is_executable)
        return files

    async def load_text(self, version: SkillVersion, path: str) -> bytes | None:
        """Return the bytes of one file, or None if the skill has no such file."""
        found = next((one for one in version.files if one.path == path), None)
        if found is None:
            return None
        return b"".join([piece async for piece in self._blobs.read(found.sha256)])

    async def _roots(self) -> AsyncIterator[Sequence[str]]:
        for kind in _VERSIONS:
            async for values in self._records.of_kind(kind):
                yield [file.sha256 for value in values for file in _version(value).files]


def _version(value: Json) -> SkillVersion:
    return msgspec.convert(value, SkillVersion)
