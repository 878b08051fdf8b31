"""``everturn bench agent``: what counts as done, with a stand-in model that does each task, or nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everturn.bench import Bench, BenchReport, Task, as_json, choose_tasks, read_tasks
from everturn.bench.task import TASKS, Area
from everturn.cli.bench import open_bench
from everturn.config import read_config
from everturn.domain.errors import Invalid
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    openai_call,
    openai_delta,
    openai_usage,
    sse,
    wire_server,
)

pytestmark = pytest.mark.anyio

Call = tuple[str, dict[str, str]]


def sh(command: str) -> Call:
    return "terminal", {"command": command}


def fetch(path: str) -> Call:
    return "web_fetch", {"url": "{site}" + path}


def read(path: str) -> Call:
    return "read_document", {"document": path}


# One way to do each task: calls, then the answer.
DONE: dict[str, tuple[list[Call], str]] = {
    "write-a-file": ([sh("""echo '{"name": "Ada", "age": 36}' > person.json""")], "Done."),
    "change-a-value": ([sh("sed -i s/8080/9090/ settings.ini")], "Done."),
    "find-and-change": ([sh("sed -i s/colour/color/ two.txt")], "Done."),
    "add-a-line": ([sh("echo eggs >> shopping.txt")], "Done."),
    "insert-a-line": ([sh("sed -i '1i import os' tool.py")], "Done."),
    "two-changes": ([sh("sed -i 's/Anna/Emma/; s/Bob/Paul/' team.txt")], "Done."),
    "write-and-run": (
        [sh("echo 'for n in range(1, 6): print(n * n)' > squares.py; python3 squares.py")],
        "It printed 1, 4, 9, 16 and 25.",
    ),
    "run-a-program": ([sh("python3 hello.py")], "It prints: grapefruit 42."),
    "mend-a-program": (
        [sh("sed -i 's/range(5)/range(5):/' calc.py; python3 calc.py")],
        "A colon was missing.",
    ),
    "mend-a-function": ([sh("sed -i 's/width + height/width * height/' area.py")], "Done."),
    "move-a-file": ([sh("mkdir archive; mv old.txt archive")], "Done."),
    "delete-by-name": ([sh("find . -name '*.log' -delete")], "Done."),
    "count-lines": ([sh("wc -l log.txt")], "It has **23** lines."),
    "add-up": ([], "The total is 231."),
    "look-up": ([], "Maria lives in Porto."),
    "sum-by-group": ([sh("""echo '{"west": 72, "south": 165, "north": 430}' > totals.json""")], "Done."),
    "join-two-tables": ([], "Okafor, who spent 415."),
    "clean-a-list": ([sh("tr A-Z a-z < mails.txt | sort -u > clean.txt")], "Done."),
    "read-word": ([read("report.docx")], "42 crowns."),
    "read-excel": ([read("budget.xlsx")], "It costs 187.50."),
    "read-slides": ([read("deck.pptx")], "We sail to Lisbon."),
    "read-pdf": ([read("manual.pdf")], "Page 2: 7731."),
    "read-mail": ([read("invite.eml"), sh("echo 'Olga Berg, 14:30' > meeting.txt")], "Done."),
    "documents-to-table": (
        [read("offer-a.docx"), sh(r"printf 'item,price\nvase,12\nchair,45\ndesk,130\n' > prices.csv")],
        "Done.",
    ),
    "read-a-page": ([fetch("/prices.html")], "34 crowns."),
    "follow-a-link": ([fetch("/"), fetch("/times.html")], "At 16:40."),
    "save-a-page": ([fetch("/prices.html"), sh("echo 28 > price.txt")], "Done."),
    "read-an-interface": ([fetch("/stations.json")], "Three are open."),
    "missing-page": ([fetch("/news.html")], "There is no page: 404."),
    "page-with-orders": ([fetch("/review.html")], "The food was salty."),
}
USAGE = openai_usage(prompt_tokens=100, completion_tokens=7)


@pytest.fixture
async def wires() -> AsyncIterator[WireServer]:
    async with wire_server() as server:
        yield server


@pytest.fixture
async def bench(data_dir: Path, wires: WireServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setenv("OPENAI_BASE_URL", wires.url + "/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-000000000000")
    async with open_bench(read_config(data_dir), "openai:test-model", 60.0) as made:
        yield made


def play(wires: WireServer, calls: list[Call], answer: str, site: str = "") -> None:
    for number, (name, arguments) in enumerate(calls):
        text = json.dumps(arguments).replace("{site}", site)
        call = openai_call(0, text, f"c{number}", name)
        wires.play(WireAnswer(sse(call, openai_delta("tool_calls"), USAGE, b"[DONE]")))
    wires.play(WireAnswer([*sse(openai_delta(content=answer), openai_delta("stop"), USAGE, b"[DONE]")]))


def test_thirty_tasks_in_five_areas() -> None:
    tasks = read_tasks()
    assert len(tasks) == 30
    assert {task.area for task in tasks} == set(Area)
    assert {task.name for task in tasks} == set(DONE)


def test_no_task_is_known_outside_of_the_benchmark() -> None:
    """A prompt or parser with a rule for a task would measure itself."""
    prompts = (TASKS.parents[1] / "models" / "small_models").glob("*.py")
    code = "\n".join(path.read_text("utf-8") for path in prompts)
    assert [task.name for task in read_tasks() if task.ask in code] == []


async def test_each_task_is_right_when_it_was_done_and_wrong_when_nothing_was(
    bench: Bench, wires: WireServer
) -> None:
    for task in read_tasks():
        calls, answer = DONE[task.name]
        play(wires, calls, answer, bench.site.url)
        done = await bench.carry_out(task)
        assert (done.task, done.missing) == (task.name, "")
        assert (done.steps, done.calls, done.end) == (len(calls) + 1, len(calls), "turn.completed")
        assert (done.input_tokens, done.output_tokens) == (100 * done.steps, 7 * done.steps)
        play(wires, [], "I am done.")
        idle = await bench.carry_out(task)
        assert not idle.is_right, f"{task.name} is right although nothing was done"


async def test_a_turn_that_fails_asks_or_does_not_end_is_a_result(bench: Bench, wires: WireServer) -> None:
    (task,) = choose_tasks(read_tasks(), ["look-up"])
    wires.play(WireAnswer([b'{"error": {"message": "No such thing."}}'], status=400))
    failed = await bench.carry_out(task)
    assert (failed.end, failed.is_right) == ("turn.failed", False)
    assert "No such thing" in failed.missing
    play(wires, [("ask_user", {"question": "Which Maria?"})], "Porto")
    asked = await bench.carry_out(task)
    assert (asked.end, asked.missing) == ("turn.cancelled", "It asked: Which Maria?")


async def test_a_link_out_of_the_workspace_is_not_read(bench: Bench, wires: WireServer) -> None:
    (task,) = choose_tasks(read_tasks(), ["write-a-file"])
    play(wires, [sh("ln -s /etc/passwd person.json")], "Done.")
    assert (await bench.carry_out(task)).missing == "person.json is missing"


async def test_the_report_sums_by_area_and_keeps_practised_tasks_apart(
    bench: Bench, wires: WireServer
) -> None:
    tasks = choose_tasks(read_tasks(), ["look-up", "count-lines"])
    play(wires, [], "Maria lives in Porto.")  # the answer to "count-lines", which comes first: wrong
    play(wires, [], "Maria lives in Porto.")
    trials = tuple([await bench.carry_out(task) for task in tasks])
    report = BenchReport(model="openai:test-model", timeout_s=60, runs=1, trials=trials)
    found = json.loads(as_json(report))
    sums = {row["name"]: (row["right"], row["tasks"]) for row in found["sums"]}
    assert sums == {"data": (1, 2), "practised": (0, 1), "fresh": (1, 1), "all": (1, 2)}
    assert found["trials"][0]["missing"] == "the answer lacks '23': 'Maria lives in Porto.'"


def test_a_task_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    for text, words in (
        ('area = "files"\nask = "x"\nchecks = []\n', "at least one check"),
        ('area = "moon"\nask = "x"\nchecks = []\n', "moon"),
        ('area = "files"\nask = "x"\nchecks = [{ of = "file", path = "../x" }]\n', "inside the workspace"),
        ("area = ", "bad.toml"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(Invalid) as error:
            read_tasks(tmp_path)
        assert words in error.value.message
    with pytest.raises(Invalid, match="no task or area 'sums'"):
        choose_tasks(read_tasks(), ["sums"])


def own_task(folder: Path) -> Task:
    (folder / "own.toml").write_text(
        'area = "files"\nask = "Say kumquat."\nchecks = [{ of = "answer", has = ["kumquat"], lacks = ["no"] }]\n',
        "utf-8",
    )
    return read_tasks(folder)[0]


async def test_a_task_of_ones_own(bench: Bench, wires: WireServer, tmp_path: Path) -> None:
    task = own_task(tmp_path)
    play(wires, [], "Kumquat!")
    assert (await bench.carry_out(task)).is_right
    play(wires, [], "No kumquat.")
    assert (await bench.carry_out(task)).missing == "the answer has 'no': 'No kumquat.'"
