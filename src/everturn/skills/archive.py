"""Reads skills from a ZIP file, in memory and within the size limits of a skill."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Final

from everturn.domain.errors import Invalid
from everturn.skills.content import (
    FILE_BYTES_MAX,
    FILES_MAX,
    SKILL_BYTES_MAX,
    SKILL_FILE,
    RawFile,
    SkillContent,
    check_path,
    is_junk,
    make_content,
    too_large,
)

ARCHIVE_BYTES_MAX: Final = 20_000_000
_MEMBERS_MAX: Final = 2_000
_SKILLS_MAX: Final = 50
_UNIX: Final = 3  # the system that created a member
_ENCRYPTED: Final = 0x1


def read_archive(file: Path | IO[bytes], name: str) -> list[SkillContent]:
    """Return all skills of a ZIP file, one for each folder with a SKILL.md.

    Raises Invalid if any of them is not valid.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            return _read(archive, name)
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError) as error:
        raise Invalid(
            f"{name} is not a ZIP file that can be read ({error}).", hint="Pack it again."
        ) from error


def _read(archive: zipfile.ZipFile, name: str) -> list[SkillContent]:
    members = archive.infolist()
    if len(members) > _MEMBERS_MAX:
        raise Invalid(
            f"{name} has {len(members):,} entries; the limit is {_MEMBERS_MAX:,}.", hint="Pack less."
        )
    wanted = [member for member in members if not member.is_dir() and not is_junk(member.filename)]
    for member in wanted:
        _check_member(member, name)
    folders = _skill_folders([member.filename for member in wanted], name)
    files: dict[str, dict[str, RawFile]] = {folder: {} for folder in folders}
    room = dict.fromkeys(folders, SKILL_BYTES_MAX)
    for member in wanted:
        folder = next((one for one in folders if member.filename.startswith(one)), None)
        if folder is None:
            continue  # outside the skills, e.g. a README for the archive
        path = member.filename.removeprefix(folder)
        if path in files[folder] or len(files[folder]) >= FILES_MAX:
            raise Invalid(f"{name} holds {path} twice, or too many files.", hint=f"At most {FILES_MAX} each.")
        content = _read_member(archive, member, name, room[folder])
        room[folder] -= len(content)
        files[folder][path] = RawFile(content, bool(member.external_attr >> 16 & 0o100))
    found = [make_content(files[folder], folder.rstrip("/") or name) for folder in folders]
    names = [content.name for content in found]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise Invalid(f"{name} holds two skills that are called {twice}.", hint="Rename one of them.")
    return found


def _check_member(member: zipfile.ZipInfo, name: str) -> None:
    # Check the name as ``zipfile`` changed it: it cuts names at a NUL and leaves backslashes.
    check_path(member.orig_filename, name)
    kind = stat.S_IFMT(member.external_attr >> 16)
    if member.create_system == _UNIX and kind not in (0, stat.S_IFREG):
        raise Invalid(
            f"{name} holds a link or a special file: {member.filename}.",
            hint="Pack the file that it leads to in its place.",
        )
    if member.flag_bits & _ENCRYPTED:
        raise Invalid(f"{name} is encrypted.", hint="Pack it without a password.")
    if member.file_size > FILE_BYTES_MAX:
        raise too_large(member.filename, name)


def _skill_folders(paths: list[str], name: str) -> list[str]:
    """Return the folders with a SKILL.md, each ending with a slash; the outermost is "".

    A skill inside another skill is part of the outer one.
    """
    folders = sorted(
        path.removesuffix(SKILL_FILE) for path in paths if PurePosixPath(path).name == SKILL_FILE
    )
    outer = [one for one in folders if not any(one != other and one.startswith(other) for other in folders)]
    if not outer:
        raise Invalid(f"{name} holds no {SKILL_FILE}.", hint="A skill is a folder with a SKILL.md in it.")
    if len(outer) > _SKILLS_MAX:
        raise Invalid(f"{name} holds {len(outer)} skills; the limit is {_SKILLS_MAX}.", hint="Pack fewer.")
    return outer


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, room: int) -> bytes:
    """Read one member. The limit counts the bytes read, because a ZIP file can state wrong sizes."""
    limit = min(FILE_BYTES_MAX, room)
    with archive.open(member) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise too_large(member.filename, name)
    return content
