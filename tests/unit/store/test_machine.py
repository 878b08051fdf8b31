"""The id of a data folder's machine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from everturn.domain.errors import StoreRefused
from everturn.domain.machine import Machine
from everturn.store.files.disk import Disk
from everturn.store.files.machine import read_machine


def test_a_data_folder_keeps_its_machine_and_another_has_another(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    first = read_machine(one, Disk())
    assert first.name
    assert read_machine(one, Disk()) == first
    assert read_machine(two, Disk()).id != first.id
    assert [path.name for path in one.iterdir()] == ["machine"]


def test_processes_that_start_at_once_get_one_id(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: read_machine(tmp_path, Disk()), range(16)))
    assert len(found) == 1


@pytest.mark.parametrize("content", [b"", b"elsewhere", b"\xff\xfe", b"mch_" + b"0" * 31 + b"@"])
def test_a_file_that_holds_no_id_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "machine").write_bytes(content)
    with pytest.raises(StoreRefused, match="does not hold the id"):
        read_machine(tmp_path, Disk())


def test_a_machine_is_recognised_by_its_id() -> None:
    here = Machine("mch_1", "one.example")
    assert here.text is not None
    assert Machine.parse(here.text) == here
    assert here.is_same(Machine("mch_1", "renamed").text)
    assert not here.is_same(Machine("mch_2", "one.example").text)
    assert here.is_same(None), "a row of an earlier version names none"
