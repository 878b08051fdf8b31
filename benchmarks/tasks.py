"""How many tasks a model completes: ``python -m benchmarks.tasks [--model coder] [--only a,b] [--log FILE]``.

Ordinary tasks, each in a fresh session with its own workspace, through the whole engine and with the real
tools. A task counts as done if the turn was completed and the requested result is there: in the files, or
in the answer. The small model's prompt was tuned with the ``practised`` tasks. Do not look at the ``fresh``
ones while changing it: they show how the model does on unknown tasks.

Not part of CI: a model's answers vary between machines, and a small model needs minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import everturn
from everturn.agent import Agent
from everturn.domain import events

_TURN_TIMEOUT_S = 600


@dataclass
class Done:
    """What a turn left behind."""

    workspace: Path
    end: str = "timeout"
    said: str = ""  # after the last tool
    calls: list[tuple[str, str]] = field(default_factory=list)  # name, outcome
    story: list[str] = field(default_factory=list)

    def file(self, name: str) -> str:
        path = self.workspace / name
        return path.read_text("utf-8", "replace") if path.is_file() else ""

    def says(self, *words: str) -> bool:
        return all(word.lower() in self.said.lower() for word in words)

    def ran(self) -> bool:
        return any(name in ("terminal", "python") and outcome == "ok" for name, outcome in self.calls)

    def prints(self, program: str, *words: str) -> bool:
        if not self.file(program):
            return False
        command = [sys.executable, program]
        ran = subprocess.run(command, cwd=self.workspace, capture_output=True, text=True, timeout=20)
        return all(word in ran.stdout.split() for word in words)


@dataclass(frozen=True)
class Task:
    name: str
    asked: str
    is_done: Callable[[Done], bool]
    files: dict[str, str] = field(default_factory=dict)


def _person(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and {str(item) for item in value.values()} >= {"Ada", "36"}


LOG = "".join(f"{number} line of the log\n" for number in range(1, 24))
SETTINGS = "[server]\nhost = localhost\nport = 8080\nname = test\n"
STORY = "A fox named Rufus crossed the frozen river to find his lost sister. He found her by the old mill.\n"
BROKEN = "total = 0\nfor i in range(5)\n    total += i\nprint('total', total)\n"
WRONG = "def area(width, height):\n    return width + height\n\n\nprint(area(6, 7))\n"

PRACTISED = (
    Task(
        "count files",
        "How many files are in this folder?",
        lambda done: done.says("4") or done.says("four"),
        {"a.txt": "1\n", "b.txt": "2\n", "c.md": "3\n", "d.py": "print(4)\n"},
    ),
    Task("count lines", "How many lines does log.txt have?", lambda done: done.says("23"), {"log.txt": LOG}),
    Task(
        "write a file",
        "Create a file person.json with the name Ada and the age 36.",
        lambda done: _person(done.file("person.json")),
    ),
    Task(
        "write and run",
        "Write a Python script squares.py that prints the squares of the numbers from 1 to 5, run it, and "
        "tell me what it printed.",
        lambda done: (
            done.prints("squares.py", "1", "4", "9", "16", "25") and done.ran() and done.says("16", "25")
        ),
    ),
    Task(
        "run a script",
        "Run hello.py and tell me what it prints.",
        lambda done: done.says("grapefruit 42") and done.ran(),
        {"hello.py": "print('grapefruit', 6 * 7)\n"},
    ),
    Task(
        "mend a program",
        "Running calc.py fails. Find out why, fix it, and run it again.",
        lambda done: done.prints("calc.py", "total", "10"),
        {"calc.py": BROKEN},
    ),
    Task(
        "find and change",
        "Find the file that contains the word 'colour' and change that word to 'color'.",
        lambda done: (
            (done.file("two.txt"), done.file("one.txt")) == ("The color is red.\n", "nothing here\n")
        ),
        {"one.txt": "nothing here\n", "two.txt": "The colour is red.\n", "three.txt": "or here\n"},
    ),
    Task(
        "change a value",
        "Change the port in settings.ini from 8080 to 9090.",
        lambda done: done.file("settings.ini") == SETTINGS.replace("8080", "9090"),
        {"settings.ini": SETTINGS},
    ),
    Task(
        "add a line",
        "Add the line 'eggs' at the end of shopping.txt.",
        lambda done: done.file("shopping.txt").rstrip("\n") == "milk\nbread\neggs",
        {"shopping.txt": "milk\nbread\n"},
    ),
    Task(
        "summarise",
        "What is story.txt about? Answer in one sentence.",
        lambda done: done.says("sister") and (done.says("fox") or done.says("Rufus")),
        {"story.txt": STORY},
    ),
    Task(
        "add up",
        "Add up the numbers in numbers.txt and tell me the total.",
        lambda done: done.says("231"),
        {"numbers.txt": "17\n25\n58\n131\n"},
    ),
    Task(
        "move",
        "Make a folder named archive and move old.txt into it.",
        lambda done: done.file("archive/old.txt") == "old\n" and not done.file("old.txt"),
        {"old.txt": "old\n"},
    ),
)
FRESH = (
    Task(
        "look up",
        "Which city does Maria live in? It is in people.csv.",
        lambda done: done.says("Porto"),
        {"people.csv": "name,city\nJohn,Leeds\nMaria,Porto\nPedro,Braga\n"},
    ),
    Task(
        "search a word",
        "Which files mention Lisbon?",
        lambda done: done.says("trip.md", "plan.txt") and not done.says("food.txt"),
        {
            "trip.md": "We fly to Lisbon.\n",
            "food.txt": "Bread and fish.\n",
            "plan.txt": "Lisbon, then home.\n",
        },
    ),
    Task(
        "mend a function",
        "The function in area.py gives the wrong result. Fix it.",
        lambda done: done.prints("area.py", "42"),
        {"area.py": WRONG},
    ),
    Task(
        "delete",
        "Delete temp.log, nothing else.",
        lambda done: not done.file("temp.log") and done.file("keep.txt") == "k\n",
        {"temp.log": "x\n", "keep.txt": "k\n"},
    ),
    Task(
        "two files",
        "Create two files: a.txt with the word apple and b.txt with the word banana.",
        lambda done: "apple" in done.file("a.txt") and "banana" in done.file("b.txt"),
    ),
    Task(
        "two changes",
        "In team.txt, replace Anna by Emma, and Bob by Paul.",
        lambda done: done.file("team.txt") == "Emma leads\nPaul writes\nCarl tests\n",
        {"team.txt": "Anna leads\nBob writes\nCarl tests\n"},
    ),
    Task(
        "copy",
        "Make a copy of report.md called report_backup.md.",
        lambda done: done.file("report.md") == done.file("report_backup.md") == "# Report\n\nAll good.\n",
        {"report.md": "# Report\n\nAll good.\n"},
    ),
    Task(
        "missing file",
        "What does missing.txt say?",
        lambda done: any(
            done.says(words)
            for words in ("not exist", "no file", "not there", "not found", "no such", "is missing")
        ),
        {"here.txt": "x\n"},
    ),
    Task(
        "insert a line",
        "Put the line 'import os' at the top of tool.py.",
        lambda done: done.file("tool.py").split() == ["import", "os", "import", "sys", "print(sys.argv)"],
        {"tool.py": "import sys\n\nprint(sys.argv)\n"},
    ),
    Task(
        "plain question", "What is the capital of Italy?", lambda done: done.says("Rome") and not done.calls
    ),
)


async def carry_out(agent: Agent, task: Task, model: str) -> Done:
    session = await agent.create_session()
    done = Done(agent.app.config.home / "workspaces" / session.id)
    for name, text in task.files.items():
        path = done.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    try:
        async with asyncio.timeout(_TURN_TIMEOUT_S):
            async for event in agent.ask(session.id, task.asked, model=model):
                await _take(agent, session.id, event, done)
    except TimeoutError:
        done.story.append(f"no end after {_TURN_TIMEOUT_S} s")
    return done


async def _take(agent: Agent, session_id: str, event: events.Event, done: Done) -> None:
    """Approve calls once; any other question (a limit, a loop) ends the turn as not done."""
    payload = event.payload
    match payload:
        case events.TextDelta():
            done.said += payload.text
        case events.StepFinished():
            done.story += [f"{call.name} {call.arguments}" for call in payload.calls]
        case events.ToolFinished():
            done.said = ""
            done.calls.append((payload.name, payload.outcome.value))
            done.story.append(f"  {payload.outcome.value}: {payload.text}")
        case events.TurnWaiting():
            for ask in await agent.asks(session_id):
                done.story.append(f"  asked: {ask.text}")
                if ask.topic == "approval":
                    await agent.answer(ask.id, "once")
                else:
                    await agent.cancel(ask.turn_id)
        case events.TurnCompleted() | events.TurnFailed() | events.TurnCancelled() | events.TurnInterrupted():
            done.end = event.kind


async def measure(args: argparse.Namespace, home: Path, log: TextIO) -> None:
    (home / "config.toml").write_text("[engine]\nmakes_titles = false\nmodel_silence_max_s = 1800\n", "utf-8")
    only = set(args.only.split(",")) if args.only else None
    async with everturn.open(home) as agent:
        for title, tasks in (("practised", PRACTISED), ("fresh", FRESH)):
            chosen = [task for task in tasks if only is None or {task.name, title} & only] * args.runs
            right = [await _one(agent, task, args.model, log) for task in chosen]
            if chosen:
                print(f"  {title}: {sum(right)} of {len(right)}\n", flush=True)


async def _one(agent: Agent, task: Task, model: str, log: TextIO) -> bool:
    begin = time.perf_counter()
    done = await carry_out(agent, task, model)
    is_right = done.end == "turn.completed" and task.is_done(done)
    took, mark = time.perf_counter() - begin, "right" if is_right else "WRONG"
    print(f"  {task.name:<18} {mark:<6} {took:>5.0f} s  {len(done.calls)} calls  {done.end}", flush=True)
    story = "\n".join(done.story)
    log.write(f"== {task.name}: {mark}, {done.end}\n> {task.asked}\n{story}\n{done.said.strip()}\n\n")
    log.flush()
    return is_right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="coder")
    parser.add_argument("--only", help="names of tasks, or practised, or fresh; with commas between them")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument(
        "--log", type=argparse.FileType("w"), default="/dev/null", help="what was done and said"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(measure(args, Path(home), args.log))


if __name__ == "__main__":
    main()
