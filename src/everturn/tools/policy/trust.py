"""Texts from outside that steer the agent are trusted by content: a change asks again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyio

from everturn.domain.clock import Clock
from everturn.domain.store import Records
from everturn.domain.tool import Instructions
from everturn.tools.paths import FolderHandle
from everturn.tools.schema import ToolFailed

TRUST = "policy.trust"
DECLINED = "policy.declined"
_AGENTS = "AGENTS.md"
_AGENTS_BYTES_MAX = 64 * 1024


class Trust:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def instructions(self, owner: str, workspace: Path) -> Instructions:
        content = await anyio.to_thread.run_sync(_read_agents, workspace)
        if content is None:
            return Instructions(is_there=False)
        is_cut = len(content) > _AGENTS_BYTES_MAX
        content = content[:_AGENTS_BYTES_MAX]
        digest = digest_of(content)
        known = await self._records.get(owner, TRUST, _agents_name(workspace))
        text = content.decode("utf-8", "replace").replace("\0", "\ufffd")  # no store keeps that one
        if known is not None and known["digest"] == digest:
            return Instructions(is_there=True, is_trusted=True, text=text, digest=digest)
        return Instructions(
            is_there=True,
            preview=text,
            digest=digest,
            is_changed=known is not None,
            is_cut=is_cut,
            is_declined=await self.is_declined(owner, _agents_name(workspace), digest),
        )

    async def decide_instructions(self, owner: str, workspace: Path, digest: str, *, use: bool) -> None:
        await self.decide(owner, _agents_name(workspace), digest, use=use)

    async def decide(self, owner: str, name: str, digest: str, *, use: bool) -> None:
        """Keep the user's answer about a text with this digest."""
        kind, other = (TRUST, DECLINED) if use else (DECLINED, TRUST)
        await self._records.put(owner, kind, name, {"digest": digest, "at": self._clock.now_ms()})
        await self._records.delete(owner, other, name)

    async def has(self, owner: str, name: str, digest: str) -> bool:
        known = await self._records.get(owner, TRUST, name)
        return known is not None and known["digest"] == digest

    async def is_declined(self, owner: str, name: str, digest: str) -> bool:
        known = await self._records.get(owner, DECLINED, name)
        return known is not None and known["digest"] == digest

    async def list(self, owner: str) -> dict[str, str]:
        """What is trusted, and with which content."""
        return {name: value["digest"] for name, value in (await self._records.list(owner, TRUST)).items()}

    async def revoke(self, owner: str, name: str) -> bool:
        return await self._records.delete(owner, TRUST, name)


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _agents_name(workspace: Path) -> str:
    return f"agents {workspace}"


def _read_agents(workspace: Path) -> bytes | None:
    """The file, or a little more than is used of it; None if there is none."""
    with FolderHandle(workspace) as files:
        try:
            return files.read(_AGENTS, _AGENTS_BYTES_MAX)
        except (OSError, ToolFailed):
            return None  # none, or a link that leads elsewhere: then there are no instructions
