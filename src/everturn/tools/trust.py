"""Texts from outside that steer the agent are trusted by content: a change asks again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyio
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.storing import Records
from everturn.tools.paths import Beneath
from everturn.tools.schema import ToolFailed

TRUST = "policy.trust"
_AGENTS = "AGENTS.md"
_AGENTS_BYTES_MAX = 64 * 1024


class Instructions(msgspec.Struct, frozen=True):
    """The workspace's AGENTS.md. ``text`` is for the context only if ``is_trusted``; else the user is to
    be asked, with ``preview``, and the answer kept with ``Trust.accept_instructions``."""

    is_there: bool
    is_trusted: bool = False
    text: str = ""
    preview: str = ""
    digest: str = ""
    is_changed: bool = False  # an earlier content was trusted


class Trust:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def instructions(self, owner: str, workspace: Path) -> Instructions:
        content = await anyio.to_thread.run_sync(_read_agents, workspace)
        if content is None:
            return Instructions(is_there=False)
        digest = digest_of(content)
        known = await self._records.get(owner, TRUST, _agents_name(workspace))
        text = content.decode("utf-8", "replace")
        if known is not None and known["digest"] == digest:
            return Instructions(is_there=True, is_trusted=True, text=text, digest=digest)
        return Instructions(is_there=True, preview=text, digest=digest, is_changed=known is not None)

    async def accept_instructions(self, owner: str, workspace: Path, digest: str) -> None:
        await self._put(owner, _agents_name(workspace), digest)

    async def has(self, owner: str, name: str, digest: str) -> bool:
        known = await self._records.get(owner, TRUST, name)
        return known is not None and known["digest"] == digest

    async def accept(self, owner: str, name: str, digest: str) -> None:
        await self._put(owner, name, digest)

    async def list(self, owner: str) -> dict[str, str]:
        """What is trusted, and with which content."""
        return {name: value["digest"] for name, value in (await self._records.list(owner, TRUST)).items()}

    async def revoke(self, owner: str, name: str) -> bool:
        return await self._records.delete(owner, TRUST, name)

    async def _put(self, owner: str, name: str, digest: str) -> None:
        await self._records.put(owner, TRUST, name, {"digest": digest, "at": self._clock.now_ms()})


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _agents_name(workspace: Path) -> str:
    return f"agents {workspace}"


def _read_agents(workspace: Path) -> bytes | None:
    with Beneath(workspace) as files:
        try:
            content = files.read(_AGENTS, _AGENTS_BYTES_MAX)
        except (OSError, ToolFailed):
            return None  # none, or a link that leads elsewhere: then there are no instructions
    return content[:_AGENTS_BYTES_MAX]
