"""Skills: folders of instructions that a model reads when a task needs them.

A **version** of a skill is its content at one time, known by a digest of all its files. What the agent gets
is the version that a person trusted, whatever its folder says by now.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from everturn.domain.tool import ToolCall, Untrusted

# After a slash these mean a command: in the browser, in a terminal or in a chat.
COMMAND_NAMES: Final = frozenset(
    (
        *("allow", "approve", "archive", "attach", "branch", "budget", "cancel", "clear", "compact", "copy"),
        *("delete", "deny", "editor", "exit", "export", "files", "folder", "help", "import", "jobs", "keys"),
        *("memory", "model", "models", "new", "pin", "profile", "project", "quit", "queue", "redo", "rename"),
        *("retry", "save", "schedule", "schedules", "sessions", "settings", "skill", "skills", "start"),
        *("status", "steer", "stop", "switch", "timeline", "title", "undo", "usage"),
    )
)


class SkillFile(msgspec.Struct, frozen=True):
    """A file of a skill. ``path``: relative, with slashes."""

    path: str
    sha256: str
    size: int
    is_executable: bool = False


class SkillVersion(msgspec.Struct, frozen=True):
    """``origin``: where it came from: page, import, folder or project. ``at``: when it came in."""

    name: str
    description: str
    digest: str
    files: tuple[SkillFile, ...]
    at: int
    origin: str = ""
    project: str = ""  # the folder of a project's skill


class OfferedSkill(msgspec.Struct, frozen=True):
    """A skill that a turn may use, as the model is told of it."""

    id: str
    name: str
    description: str
    digest: str


class SkillText(msgspec.Struct, frozen=True):
    """What the model reads of a skill."""

    name: str
    digest: str
    text: str


class Skills(Protocol):
    """The skills of turns. ``workspace``: the folder of a project; None: the session works in no project."""

    async def list_offered(
        self, owner: str, profile: str | None, workspace: Path | None
    ) -> Sequence[OfferedSkill]:
        """What the turn may use: trusted, switched on, in its profile. Sorted by name."""
        ...

    async def read(self, owner: str, skill: OfferedSkill, turn_id: str) -> SkillText:
        """The instructions of the skill, for the model; its files are then readable in the sandbox. Records
        that the turn used it."""
        ...

    async def list_untrusted(self, owner: str, workspace: Path) -> Sequence[Untrusted]:
        """The skills of the project that are new or have changed, and are not decided about."""
        ...

    async def decide_untrusted(self, owner: str, workspace: Path, digest: str, *, use: bool) -> None:
        """Keep the answer about these texts."""
        ...


class SkillFolders(Protocol):
    async def find(self, call: ToolCall) -> tuple[Path, ...]:
        """The folders of skills that a command of this call may read."""
        ...
