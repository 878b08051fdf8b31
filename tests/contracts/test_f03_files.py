"""F03: files that a turn made and its answer names are sent after it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from everturn.delivery.made_files import find_answered_files
from everturn.domain.checkpoints import ChangeKind, FileChange
from everturn.domain.clock import SystemClock
from everturn.store import Store
from everturn.testing import Say
from everturn.testing.harness import open_harness
from everturn.testing.platform import PLAIN, RICH, FakePlatform
from tests.file_sessions import options_of, writing
from tests.serving import FAST, answering, arrived, service_of, serving

pytestmark = pytest.mark.anyio
ANSWER = Say("Here is [the table](table.csv), and [a large one](large.bin). Not [this](other.txt).")


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


async def test_f03_files_that_the_answer_names_are_sent_after_it(store: Store, tmp_path: Path) -> None:
    platform = FakePlatform(features=RICH)
    files = writing(table_csv="a,b", large_bin="x" * 100, notes_txt="not named")
    settings = msgspec.structs.replace(FAST, file_bytes_max=50)
    options = options_of(store, tmp_path)
    async with (
        open_harness(store, files, ANSWER, clock=SystemClock(), **options) as harness,
        serving(service_of(harness, platform, settings)),
    ):
        platform.say("u1", "make a table")
        texts = await arrived(platform, 4)
    assert texts[0].startswith("*Used ")
    assert texts[1].startswith("Here is")
    assert platform.file_bytes == [("table.csv", b"a,b")]
    assert platform.arrived[2].file is not None
    assert platform.arrived[2].file.media_type == "text/csv"
    assert texts[3] == "*large.bin is not sent: it has 100 bytes, more than 50.*"


async def test_f03_a_platform_without_files_gets_the_words_only(store: Store, tmp_path: Path) -> None:
    platform = FakePlatform(features=PLAIN)
    options = options_of(store, tmp_path)
    script = (writing(table_csv="a,b"), ANSWER, Say("next"))
    async with (
        open_harness(store, *script, clock=SystemClock(), **options) as harness,
        serving(service_of(harness, platform)),
    ):
        platform.say("u1", "make a table")
        await arrived(platform, 2)
        platform.say("u2", "and?")
        assert (await arrived(platform, 3))[2] == "next"


async def test_f03_an_answer_that_would_fill_the_chat_comes_as_a_file(store: Store) -> None:
    long = "First words.\n\n" + "and more " * 4_000
    for features in (RICH, PLAIN):
        platform = FakePlatform(features=features, account=f"files-{features.files}")
        async with answering(store, platform, Say(long)):
            platform.say("u1", "tell me all")
            texts = await arrived(platform, 3 if features.files else 2)
        if features.files:
            assert texts[:2] == ["First words.", "*The whole answer is in answer.md.*"]
            assert platform.file_bytes == [("answer.md", long.encode())]
        else:
            assert [text.strip() for text in texts] == ["First words.", ("and more " * 4_000).strip()]


def test_f03_only_what_the_turn_made_is_named() -> None:
    changes = tuple(
        FileChange(path, what)
        for path, what in {
            "plot.png": ChangeKind.ADDED,
            "out/a b.txt": ChangeKind.CHANGED,
            "gone.txt": ChangeKind.DELETED,
            "f(1).txt": ChangeKind.ADDED,
        }.items()
    )
    answer = """
![plot](./plot.png "A plot") and again [plot](/home/me/work/plot.png), [text](<out/a b.txt>), [same](out/a%20b.txt),
[gone](gone.txt), [secret](/etc/passwd), [up](../plot.png), [web](https://example.com/plot.png), [f](f(1).txt), plot.png
"""
    assert [change.path for change in find_answered_files(answer, changes)] == [
        "plot.png",
        "out/a b.txt",
        "f(1).txt",
    ]


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ("I made plot.png for you.", ["plot.png"]),
        ("It is in `out/report.pdf`, with the figures in **plot.png**.", ["out/report.pdf", "plot.png"]),
        ("It is report.pdf.", ["out/report.pdf"]),
        ("See ./plot.png; plot.png.bak, myplot.png and other/plot.png are others.", ["plot.png"]),
        ("I changed main.py and wrote a/x.txt. Not x.txt alone.", ["a/x.txt"]),
        ("Run it:\n\n```sh\nopen plot.png\n```\n", []),
        ("Makefile and a new folder `out`.", []),
        ("המסמך plot.png מוכן", ["plot.png"]),
    ],
)
def test_f03_a_new_file_is_sent_if_the_answer_names_it(answer: str, sent: list[str]) -> None:
    changes = [
        FileChange(path, ChangeKind.ADDED) for path in ("plot.png", "out/report.pdf", "a/x.txt", "b/x.txt")
    ]
    changes += [FileChange("main.py", ChangeKind.CHANGED), FileChange("Makefile", ChangeKind.CHANGED)]
    assert [change.path for change in find_answered_files(answer, tuple(changes))] == sent
