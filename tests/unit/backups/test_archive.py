"""A backup as a tar stream: what goes in comes out, and what no backup holds is refused."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from everturn.backups.archive import ArchiveReader, unpack
from everturn.domain.errors import Invalid, NotADatabase


def _archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    out.seek(0)
    return out


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o6755
    return info


def _look(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode & 0o7777
        content: object = os.readlink(path) if path.is_symlink() else None
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = (None if path.is_symlink() else mode, content)
    return found


def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    source = tmp_path / "source"
    deep = source / "workspaces" / ("a folder with a long name " * 5) / "ü"
    deep.mkdir(parents=True)
    (deep / "large").write_bytes(os.urandom(3_000_001))
    (deep / "empty").write_bytes(b"")
    (deep / "link").symlink_to("/nowhere/at/all")
    (deep / os.fsdecode(b"not utf-8 \xff")).write_text("x")
    (deep / "run.sh").write_text("#!/bin/sh\n")
    (deep / "run.sh").chmod(0o755)
    (source / "memory").mkdir()
    (source / "memory").chmod(0o500)
    advanced: list[int] = []
    reader = ArchiveReader(source, advanced.append)
    content = b"".join(iter(lambda: reader.read(70_001), b""))
    unpack(io.BytesIO(content), tmp_path / "target")
    assert _look(tmp_path / "target") == _look(source)
    assert sum(advanced) == len(content)


@pytest.mark.parametrize(
    "members",
    [
        [(_member("../outside"), b"x")],
        [(_member("/tmp/everturn-outside"), b"x")],
        [(_member("a", tarfile.DIRTYPE), b""), (_member("a/../../outside"), b"x")],
        [(_member("a", tarfile.SYMTYPE, "/tmp"), b""), (_member("a/outside"), b"x")],
        [(_member("a"), b"x"), (_member("b", tarfile.LNKTYPE, "a"), b"")],
        [(_member("a", tarfile.FIFOTYPE), b"")],
        [(_member("a", tarfile.CHRTYPE), b"")],
        [(_member("missing-folder/a"), b"x")],
        [(_member("/".join("d" * 300)), b"x")],
    ],
    ids=["above", "absolute", "dots", "through a link", "hard link", "pipe", "device", "no folder", "deep"],
)
def test_what_no_backup_holds_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    with pytest.raises(Invalid, match="Nothing was restored"):
        unpack(_archive(*members), tmp_path / "target")
    assert not (tmp_path / "outside").exists()
    assert not Path("/tmp/everturn-outside").exists()


def test_a_name_that_comes_twice_overwrites_nothing(tmp_path: Path) -> None:
    twice = _archive((_member("config.toml"), b"first"), (_member("config.toml"), b"second"))
    with pytest.raises(OSError, match="exists"):
        unpack(twice, tmp_path / "target")
    assert (tmp_path / "target" / "config.toml").read_bytes() == b"first"


def test_a_sparse_file_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    info = _member("everturn.db")
    info.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.name": "everturn.db",
        "GNU.sparse.map": "0,1",
        "GNU.sparse.size": str(1 << 50),
        "GNU.sparse.realsize": str(1 << 50),
    }
    with pytest.raises(Invalid, match="Nothing was restored"):
        unpack(_archive((info, b"x")), tmp_path / "target")


def test_no_file_gets_the_rights_of_its_owner(tmp_path: Path) -> None:
    unpack(_archive((_member("a"), b"x")), tmp_path / "target")
    assert (tmp_path / "target" / "a").stat().st_mode & 0o7000 == 0


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotADatabase, match="not an archive"):
        unpack(io.BytesIO(os.urandom(5_000)), tmp_path / "target")
