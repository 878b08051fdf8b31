"""What a task is: a file of TOML with a request, the files it starts with, and the checks of its result.

A task does not say how it is to be done. Nothing else in Everturn knows of tasks: a prompt or a parser that
did would measure itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Union

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.json_types import Json

TASKS = Path(__file__).parent / "tasks"
PRACTISED, FRESH = "practised", "fresh"


class Area(StrEnum):
    FILES = "files"
    SHELL = "shell"
    DATA = "data"
    DOCUMENTS = "documents"
    WEB = "web"


class AnswerCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="of", tag="answer"):
    """What the agent says after its last call has these words, none of ``lacks``. ``a|b``: one of both."""

    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


class FileCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="of", tag="file"):
    """A file of the workspace is there, or not, with this text (ends of lines aside), words or JSON."""

    path: str
    equals: str | None = None
    has: tuple[str, ...] = ()
    json: Json = None
    is_there: bool = True


class CommandCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="of", tag="command"):
    """A command, run in the sandbox of the session, prints these words."""

    run: str
    has: tuple[str, ...]


class CallCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="of", tag="call"):
    """The agent has called one of these tools with success."""

    any_of: tuple[str, ...]


Check = Union[AnswerCheck, FileCheck, CommandCheck, CallCheck]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``files`` are texts in the workspace; the folder beside the task holds those that are not.

    ``site``: the pages of a local web site; ``{site}`` in the request is its address. ``practised``: prompts
    were tuned with it.
    """

    name: str = ""
    area: Area
    ask: str
    checks: tuple[Check, ...]
    files: dict[str, str] = {}
    site: dict[str, str] = {}
    practised: bool = False
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not self.ask.strip() or not self.checks:
            raise ValueError("a task has a request and at least one check")
        for path in (*self.files, *(check.path for check in self.checks if isinstance(check, FileCheck))):
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                raise ValueError(f"{path} is not a path inside the workspace")


def read_tasks(folder: Path = TASKS) -> list[Task]:
    """The tasks of a folder, by name. Raises Invalid, with the file and the field."""
    found = [_read(path) for path in sorted(folder.glob("*.toml"))]
    if not found:
        raise Invalid(f"There are no tasks in {folder}.", hint="A task is a file such as count-lines.toml.")
    return found


def _read(path: Path) -> Task:
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        folder = path.with_suffix("")
        own = {"name": path.stem, "folder": folder if folder.is_dir() else None}
        task = msgspec.convert(given, Task)
        return msgspec.structs.replace(task, **own)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise Invalid(f"{path}: {error}", hint="docs/benchmark.md describes the file of a task.") from error


def choose_tasks(tasks: Sequence[Task], only: Collection[str]) -> list[Task]:
    """Those of these names or areas, or the practised or fresh ones; all if none is named. Raises Invalid."""
    known = {word for task in tasks for word in _words(task)}
    for word in only:
        if word not in known:
            raise Invalid(
                f"There is no task or area {word!r}.", hint=f"There are: {', '.join(sorted(known))}."
            )
    return [task for task in tasks if not only or _words(task) & set(only)]


def _words(task: Task) -> set[str]:
    return {task.name, task.area.value, PRACTISED if task.practised else FRESH}
