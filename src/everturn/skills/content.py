"""The validated content of a skill: its files, and the name and description from its SKILL.md."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.skills import COMMAND_NAMES
from everturn.skills.front_matter import read_head

SKILL_FILE: Final = "SKILL.md"
SKILL_FILE_BYTES_MAX: Final = 64 * 1024
FILE_BYTES_MAX: Final = 5_000_000
SKILL_BYTES_MAX: Final = 10_000_000
FILES_MAX: Final = 200
DESCRIPTION_CHARS_MAX: Final = 1024
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NAME_CHARS_MAX: Final = 64
_PATH_CHARS_MAX: Final = 200
_DEPTH_MAX: Final = 8
# Files that systems and programs leave in folders; never part of a skill.
JUNK: Final = frozenset((".git", ".DS_Store", "__MACOSX", "__pycache__", "Thumbs.db"))
_HINT_BOUNDS: Final = "Keep large data beside the skill, in the workspace."


class RawFile(msgspec.Struct, frozen=True):
    content: bytes
    is_executable: bool = False

    @property
    def text(self) -> str | None:
        """Return the file as text, or None if it is not text."""
        try:
            text = self.content.decode()
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text


class SkillContent(msgspec.Struct, frozen=True):
    name: str
    description: str
    digest: str
    files: dict[str, RawFile]

    @property
    def text(self) -> str:
        return self.files[SKILL_FILE].content.decode()


def make_content(files: Mapping[str, RawFile], shown: str) -> SkillContent:
    """Check the files and read the head of SKILL.md. Errors call the skill ``shown``. Raises Invalid."""
    _check_files(files, shown)
    main = files.get(SKILL_FILE)
    if main is None:
        raise Invalid(f"{shown} has no file {SKILL_FILE}.", hint="A skill is a folder with a SKILL.md in it.")
    name, description = _read_main(main.content, f"{SKILL_FILE} of {shown}")
    return SkillContent(name, description, digest_of(files), dict(sorted(files.items())))


def _read_main(content: bytes, shown: str) -> tuple[str, str]:
    if len(content) > SKILL_FILE_BYTES_MAX:
        raise Invalid(
            f"{shown} has {len(content):,} bytes; the limit is {SKILL_FILE_BYTES_MAX:,}.",
            hint="Move details to other files of the skill, and name them in it.",
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{shown} is not UTF-8 text (byte {error.start}).", hint="Save it as UTF-8.") from error
    if "\0" in text:
        raise Invalid(f"{shown} holds a NUL character.", hint="Remove it.")
    head = read_head(text, shown, ("name", "description"))
    name, description = head.fields.get("name", ""), head.fields.get("description", "")
    if not name:
        raise Invalid(f"{shown} has no name.", hint="Begin it with ---, name: …, description: …, ---.")
    check_name(name, "skill")
    if not description.strip():
        raise Invalid(f"{shown} has no description.", hint="Say in one sentence when to use the skill.")
    if len(description) > DESCRIPTION_CHARS_MAX:
        raise Invalid(
            f"The description in {shown} has {len(description):,} characters; the limit is "
            f"{DESCRIPTION_CHARS_MAX:,}.",
            hint="Say there when to use the skill, and the rest below.",
        )
    return name, " ".join(description.split())


def check_name(name: str, what: str) -> None:
    """Check the name of a skill or a prompt. Raises Invalid."""
    if not _NAME.fullmatch(name) or len(name) > _NAME_CHARS_MAX:
        raise Invalid(
            f"{name[:80]!r} cannot be the name of a {what}.",
            hint=f"Use small letters, digits and single hyphens between them, at most {_NAME_CHARS_MAX}.",
        )
    if name in COMMAND_NAMES:
        raise Invalid(
            f"A {what} cannot be called {name}: /{name} is a command.",
            hint=f"Choose another name, e.g. my-{name}.",
        )


def digest_of(files: Mapping[str, RawFile]) -> str:
    """Return a digest over the files, their names and their executable bits."""
    facts = [
        (path, hashlib.sha256(file.content).hexdigest(), file.is_executable)
        for path, file in sorted(files.items())
    ]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


def is_junk(path: str) -> bool:
    return not JUNK.isdisjoint(path.split("/"))


def check_path(path: str, shown: str) -> None:
    """Raise Invalid for a path that could leave the skill's folder, or that some systems cannot store."""
    parts = path.split("/")
    is_wrong = (
        path.startswith("/")
        or "\\" in path
        or any(part in ("", ".", "..") for part in parts)
        or any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in path)
        or re.match(r"[A-Za-z]:", path)
    )
    if is_wrong or len(path) > _PATH_CHARS_MAX or len(parts) > _DEPTH_MAX:
        raise Invalid(
            f"{shown} has a file whose path cannot be used: {path[:_PATH_CHARS_MAX]!r}.",
            hint="Paths stay inside the skill's folder, and are short.",
        )


def _check_files(files: Mapping[str, RawFile], shown: str) -> None:
    if len(files) > FILES_MAX:
        raise Invalid(f"{shown} has {len(files):,} files; the limit is {FILES_MAX}.", hint=_HINT_BOUNDS)
    seen: dict[str, str] = {}
    for path, file in files.items():
        check_path(path, shown)
        folded = unicodedata.normalize("NFC", path).casefold()
        if folded in seen:
            raise Invalid(
                f"{shown} has two files with almost the same name: {seen[folded]} and {path}.",
                hint="Rename one: some systems cannot hold both.",
            )
        seen[folded] = path
        if len(file.content) > FILE_BYTES_MAX:
            raise too_large(path, shown)
    for path in files:
        # The same name cannot be both a file and a folder.
        parent = path.rpartition("/")[0]
        while parent:
            if parent in files:
                raise Invalid(f"{shown} has a file and a folder {parent}.", hint="Rename one of them.")
            parent = parent.rpartition("/")[0]
    total = sum(len(file.content) for file in files.values())
    if total > SKILL_BYTES_MAX:
        raise Invalid(f"{shown} has {total:,} bytes; the limit is {SKILL_BYTES_MAX:,}.", hint=_HINT_BOUNDS)


def too_large(path: str, shown: str) -> Invalid:
    return Invalid(
        f"{path} of {shown} is larger than {FILE_BYTES_MAX:,} bytes.",
        hint=f"The limit of a whole skill is {SKILL_BYTES_MAX:,} bytes. {_HINT_BOUNDS}",
    )


def too_many(shown: str) -> Invalid:
    return Invalid(f"{shown} has more than {FILES_MAX} files.", hint=_HINT_BOUNDS)
