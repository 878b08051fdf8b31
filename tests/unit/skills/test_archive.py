"""ZIP files of skills: sound ones are read, the others refused with what to do; nothing is written anywhere."""

from __future__ import annotations

import io
import stat
import zipfile

import pytest

from everturn.domain.errors import Invalid
from everturn.skills import read_archive
from tests.unit.skills.kit import skill_text, zip_of

GOOD = skill_text("restic-care")


def read(data: bytes) -> list[str]:
    return [content.name for content in read_archive(io.BytesIO(data), "skills.zip")]


def test_skills_in_folders_and_at_the_top_are_found() -> None:
    assert read(zip_of({"SKILL.md": GOOD, "scripts/check.sh": "exit 0"})) == ["restic-care"]
    many: dict[str, bytes | str] = {
        "all/restic-care/SKILL.md": GOOD,
        "all/photos/SKILL.md": skill_text("photos"),
        "all/README.md": "hello",
        "__MACOSX/all/photos/._SKILL.md": b"\0\1",
        "all/photos/.DS_Store": b"\0",
    }
    assert read(zip_of(many)) == ["photos", "restic-care"]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"../SKILL.md": GOOD}, "path cannot be used"),
        ({"SKILL.md": GOOD, "/etc/passwd": "x"}, "path cannot be used"),
        ({"SKILL.md": GOOD, "a/../../b": "x"}, "path cannot be used"),
        ({"SKILL.md": GOOD, "a\\..\\b": "x"}, "path cannot be used"),
        ({"SKILL.md": GOOD, "C:evil": "x"}, "path cannot be used"),
        ({"SKILL.md": GOOD, "a\u202eb.sh": "x"}, "path cannot be used"),
        ({"README.md": "no skill"}, "holds no SKILL.md"),
        ({"a/SKILL.md": "no head"}, "has no name"),
        ({"a/SKILL.md": "---\nname: a\n---\n"}, "has no description"),
        ({"a/SKILL.md": skill_text("stop")}, "is a command"),
        ({"a/SKILL.md": skill_text("Not Good")}, "cannot be the name"),
        ({"a/SKILL.md": GOOD.encode() + b"\xff"}, "not UTF-8"),
        ({"a/SKILL.md": GOOD + "x" * 70_000}, "the limit is 65,536"),
        ({"a/SKILL.md": GOOD, "a/x": b"0" * 50_000_000}, "larger than 5,000,000"),
        ({"a/SKILL.md": GOOD, **{f"a/{n}": b"0" * 4_000_000 for n in range(3)}}, "larger than"),
        ({"a/SKILL.md": GOOD, **{f"a/{n}": b"" for n in range(300)}}, "too many files"),
        ({"a/SKILL.md": GOOD, "a/Read.md": "x", "a/READ.md": "y"}, "almost the same name"),
        ({"a/SKILL.md": GOOD, "b/SKILL.md": GOOD}, "two skills"),
    ],
)
def test_what_is_wrong_is_refused_whole(members: dict[str, bytes | str], said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        read(zip_of(members))
    assert caught.value.hint


def test_links_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("SKILL.md", GOOD)
        link = zipfile.ZipInfo("key")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/shadow")
    with pytest.raises(Invalid, match="a link"):
        read(buffer.getvalue())


def test_a_size_that_is_stated_too_small_does_not_let_more_in() -> None:
    data = bytearray(zip_of({"SKILL.md": GOOD, "bomb": b"0" * 20_000_000}))
    # The size in the directory at the end, which readers believe.
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (100).to_bytes(4, "little")
    with pytest.raises(Invalid):
        read(bytes(data))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 nothing", b"\x1f\x8b not a zip"])
def test_what_is_no_zip_file_is_refused(data: bytes) -> None:
    with pytest.raises(Invalid, match="not a ZIP file"):
        read(data)
