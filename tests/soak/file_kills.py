"""A server is killed with SIGKILL while files are written, saved, undone, restored and collected, and compared
with a plain model after each restart. Every request is repeated until it is answered, so that the model knows
what has to be there: ``python -m tests.soak.file_kills --kills 200 [--seed 7] [--database-url postgresql://…]``
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import httpx2

from everturn.domain.asks import DoubtAnswer
from everturn.domain.trees import hash_bytes
from everturn.lab.service.people import Lost, Server
from everturn.lab.service.soak import server_environment
from everturn.lab.service.talker import Talker
from everturn.testing.forks import ForkOutput, Process, open_command
from everturn.testing.hurried_server import COLLECTED
from everturn.testing.ports import free_port
from everturn.testing.wires import served

Files = dict[str, str]
NAMES = ("a.txt", "b.txt", "src/a.py", "src/deep/b.py", "long.txt")
ACTS = ("write", "write", "write", "save", "undo", "undo", "redo", "restore")
SESSION_ACTS = 14  # then the next session; the last one is deleted
PATIENCE_S = 1_800.0  # for one act: a hang must end, a slow machine must not
FINISH_S = 240.0  # to finish a restore: the server may be killed several times before it is done


class SessionModel:
    """The files of each turn as they have to be. ``path``: the turns that are shown.

    An undo gives back what was there before the turn, which can differ from ``after`` of the turn before it:
    that holds what was saved since. ``found_again``: what an undo put there after that; it may have a version of
    its own, if no other one has it any more.
    """

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.files: Files = {}
        self.before: dict[str | None, Files] = {}
        self.after: dict[str | None, Files] = {None: {}}
        self.found_again: dict[str | None, Files] = {}
        self.path: list[str | None] = [None]
        self.undone: list[str | None] = []

    def write(self, turn: str, files: Files) -> None:
        self.before[turn] = self.files
        self.files = self.after[turn] = self.files | files
        self.path.append(turn)
        self.undone = []

    def record(self, files: Files) -> None:
        """A save or a restore: a new version of the last turn."""
        self.files = self.after[self.path[-1]] = files
        self.found_again.pop(self.path[-1], None)

    def undo(self) -> None:
        turn = self.path.pop()
        self.undone.append(turn)
        self.files = self.found_again[self.path[-1]] = self.before[turn]

    def redo(self) -> None:
        self.path.append(self.undone.pop())
        self.files = self.after[self.path[-1]]

    def versions(self, turn: str | None) -> list[Files]:
        return [self.after[turn], self.found_again.get(turn, self.after[turn])]


class Walker:
    """Works in one session after another, and checks its files after every act."""

    def __init__(self, name: str, server: Server, home: Path, seed: int) -> None:
        self._name = name
        self._server = server
        self._home = home
        self._choice = random.Random(seed)
        self._keys = 0
        self.doing = ""  # the act that is under way
        self.done: Counter[str] = Counter()
        self.strays = 0  # half-written files of this session that a kill left behind

    async def live(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            made = await self._server.post("/api/sessions", {}, self._key(), 201)
            model = SessionModel(made["id"])
            for _ in range(SESSION_ACTS):
                with anyio.fail_after(PATIENCE_S):
                    await self._act(self._choice.choice(ACTS), model)
                    await self._check(model, model.path[-1:])
                if is_over():
                    break
            await self._check(model, list(model.after))
            answer = await self._server.ask("DELETE", f"/api/sessions/{model.id}")
            if answer.status_code not in (200, 202, 204, 404, 410):
                raise Lost(f"deleting: {answer.status_code} {answer.text[:300]}")

    def _key(self) -> str:
        self._keys += 1
        return f"{self._name}-{self._keys}"

    # --- acts --------------------------------------------------------------------------------------

    async def _act(self, act: str, model: SessionModel) -> None:
        acts: dict[str, Callable[[SessionModel], Awaitable[None]]] = {
            "write": self._write,
            "save": self._save,
            "undo": self._undo,
            "redo": self._redo,
            "restore": self._restore,
        }
        self.doing = act
        await acts[act](model)
        self.doing = ""
        self.done[act] += 1

    def _texts(self) -> Files:
        names = self._choice.sample(NAMES, self._choice.randrange(1, len(NAMES)))
        return {name: f"{self._key()} {name}\n" * (20_000 if name == "long.txt" else 3) for name in names}

    async def _write(self, model: SessionModel) -> None:
        files = {name: text[:2000] for name, text in self._texts().items()}
        said = {"text": f"write {json.dumps(files)}"}
        accepted = await self._server.post(f"/api/sessions/{model.id}/turns", said, self._key(), 202)
        turn = accepted["turn"]["id"]
        await self._until_ended(model, turn)
        model.write(turn, files)

    async def _until_ended(self, model: SessionModel, turn: str) -> None:
        with anyio.fail_after(PATIENCE_S):
            while True:
                state = (await self._server.get(f"/api/turns/{turn}"))["state"]
                if state == "completed":
                    return
                if state in ("failed", "cancelled"):
                    raise Lost(f"{turn} is {state}")
                if state == "interrupted":  # it was killed so often that the server asks before it goes on
                    await self._server.ask("POST", f"/api/turns/{turn}/resume", json={})
                    self.done["resumed"] += 1
                if state == "waiting":
                    for ask in (await self._server.get(f"/api/approvals?session={model.id}"))["items"]:
                        body = {"answer": DoubtAnswer.RUN_AGAIN}
                        await self._server.ask("POST", f"/api/questions/{ask['id']}", json=body)
                await anyio.sleep(0.02)

    async def _save(self, model: SessionModel) -> None:
        """A save has no key: a repeated one is refused, and then what is there says whether it was done."""
        (name, text), *_ = self._texts().items()
        before = model.files.get(name)
        headers = {"if-none-match": "*"} if before is None else {"if-match": f'"{_hash(before)}"'}
        path = f"/api/sessions/{model.id}/files/content?path={name}"
        answer = await self._server.ask("PUT", path, content=text.encode(), headers=headers)
        if answer.status_code == 412:
            # It was written before the kill, perhaps without a checkpoint: saved again over itself, it has one.
            headers = {"if-match": f'"{_hash(text)}"'}
            answer = await self._server.ask("PUT", path, content=text.encode(), headers=headers)
        if answer.status_code != 200:
            raise Lost(f"saving {name}: {answer.status_code} {answer.text[:300]}")
        model.record(model.files | {name: text})

    async def _undo(self, model: SessionModel) -> None:
        if model.path[-1] is not None:
            await self._move(model, "undo")
            model.undo()

    async def _redo(self, model: SessionModel) -> None:
        if model.undone:
            await self._move(model, "redo")
            model.redo()

    async def _move(self, model: SessionModel, move: str) -> None:
        """Asked anew if the session got its title meanwhile, which is another version: nothing has moved."""
        path = f"/api/sessions/{model.id}"
        while True:
            version = (await self._server.get(path))["version"]
            headers = {"idempotency-key": self._key(), "if-match": f'"{version}"'}
            body = {"files": "restore"}
            answer = await self._server.ask("POST", f"{path}/{move}", json=body, headers=headers)
            if answer.status_code == 200:
                return
            if answer.status_code != 409 or answer.json()["code"] != "stale_version":
                raise Lost(f"{move}: {answer.status_code} {answer.text[:300]}")

    async def _restore(self, model: SessionModel) -> None:
        """Repeated until the plan says that nothing is left to do."""
        known = [turn for turn in model.after if turn is not None and turn not in model.found_again]
        at = self._choice.choice(known or [None])
        if at is None or model.after[at] == model.files:
            return
        wanted, base = dict(model.after[at]), f"/api/sessions/{model.id}/files"
        while True:
            plan = await self._server.get(f"{base}/plan?action=restore&at={at}")
            if not plan["total"]:
                break
            body = {"at": at, "digest": plan["digest"]}
            answer = await self._server.ask("POST", f"{base}/restore", json=body)
            if answer.status_code not in (200, 409):
                raise Lost(f"restoring: {answer.status_code} {answer.text[:300]}")
        model.record(wanted)

    # --- checks ------------------------------------------------------------------------------------

    async def _check(self, model: SessionModel, turns: list[str | None]) -> None:
        """The folder holds what the model has, and so do the versions of these turns."""
        folder = self._home / "workspaces" / model.id
        with anyio.move_on_after(FINISH_S):
            while _files_in(folder) != model.files:
                await anyio.sleep(0.02)
        found = _files_in(folder)
        if found != model.files:
            raise Lost(f"{model.id} after {dict(self.done)}: {_difference(model.files, found)}")
        self.strays += sum(1 for _ in folder.rglob(".everturn-*"))
        for turn in turns:
            if turn is not None:
                await self._check_version(model, turn)

    async def _check_version(self, model: SessionModel, turn: str) -> None:
        found: Files = {}
        for name in {name for files in model.versions(turn) for name in files}:
            path = f"/api/sessions/{model.id}/files/content?path={name}&at={turn}"
            answer = await self._server.ask("GET", path)
            if answer.status_code == 200:
                found[name] = answer.text
            elif answer.status_code != 404:
                raise Lost(f"{name} at {turn}: {answer.status_code} {answer.text[:120]!r}")
        if found not in model.versions(turn):
            raise Lost(f"{turn}: {_difference(model.after[turn], found)}")


class FileKills:
    def __init__(
        self,
        home: Path,
        *,
        kills: int,
        seed: int,
        walkers: int = 4,
        life_s: float = 1.0,
        database_url: str = "",
    ) -> None:
        self._home = home
        self._plan = kills, life_s, database_url
        self._choice = random.Random(seed)
        self._server: Server
        self._seeds = [seed * 1000 + number for number in range(walkers)]
        self.kills = 0
        self.on_kill: Callable[[], None] = lambda: None
        self.cut: Counter[str] = Counter()  # what was going on when it was killed
        self.walkers: list[Walker] = []

    async def run(self) -> None:
        """Raises Lost if a file is not what it has to be."""
        port, (_, _, database_url) = free_port(), self._plan
        url = f"http://127.0.0.1:{port}"
        async with (
            served(Talker) as talker,
            httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False) as http,
        ):
            server = Server(http)
            environ = server_environment(self._home, talker.url, database_url)
            self.walkers = [Walker(f"w{seed}", server, self._home, seed) for seed in self._seeds]
            async with anyio.create_task_group() as lives:
                lives.start_soon(self._lives, server, environ, port)
                async with anyio.create_task_group() as group:
                    for walker in self.walkers:
                        group.start_soon(walker.live, self._is_over)
                lives.cancel_scope.cancel()

    def _is_over(self) -> bool:
        return self.kills >= self._plan[0]

    async def _lives(self, server: Server, environ: dict[str, str], port: int) -> None:
        while True:
            async with _run_server(environ, port) as process:
                server.up.set()
                if self._is_over():
                    await anyio.sleep_forever()  # the last life: the walkers finish what they do
                await _until_used(process.pid, self._choice.uniform(0.02, self._plan[1]))
                server.up = anyio.Event()
                self.cut.update(walker.doing or "between" for walker in self.walkers)
                process.kill()
                await process.wait()
                self.kills += 1
                self.on_kill()

    @property
    def done(self) -> Counter[str]:
        return sum((walker.done for walker in self.walkers), Counter())

    @property
    def strays(self) -> int:
        return sum(walker.strays for walker in self.walkers)


@asynccontextmanager
async def _run_server(environ: dict[str, str], port: int) -> AsyncIterator[Process]:
    """A server that is ready. Forked, because importing it takes longer than most of its lives."""
    command = open_command("--port", str(port), environ=environ, module="everturn.testing.hurried_server")
    async with command as process, anyio.create_task_group() as group:
        text = b""
        while b"is ready" not in text:
            text += await process.stdout.receive()
        group.start_soon(_drain, process.stdout)
        yield process
        group.cancel_scope.cancel()


async def _drain(output: ForkOutput) -> None:
    with suppress(anyio.EndOfStream):
        while True:
            await output.receive()


async def _until_used(pid: int, seconds: float) -> None:
    """Wait until the process has used this much CPU time from now on: on a busy machine it gets as far as on an
    idle one."""
    until = _used_s(pid) + seconds
    while _used_s(pid) < until:
        await anyio.sleep(0.01)


def _used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _hash(text: str) -> str:
    return hash_bytes(text.encode())


def _files_in(folder: Path) -> Files:
    """What is in the folder. The server may be replacing files: one that goes meanwhile is not there."""
    found: Files = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if not path.name.startswith(".everturn-") and path.is_file():
                found[str(path.relative_to(folder))] = path.read_text()
    return found


def _difference(wanted: Files, found: Files) -> str:
    names = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    return "; ".join(f"{n}: {found.get(n, 'none')[:40]!r}, not {wanted.get(n, 'none')[:40]!r}" for n in names)


def count_files(home: Path) -> dict[str, int]:
    """How many files there are in each folder of the data folder, to see what is left behind."""
    return dict(Counter(path.relative_to(home).parts[0] for path in home.rglob("*") if path.is_file()))


def count_collected(home: Path) -> tuple[int, int, int]:
    """Blobs marked, blobs deleted and bytes of packs freed, in all lives of the server."""
    path = home / COLLECTED
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [[int(number) for number in line.split()] for line in lines]
    marked, deleted, freed = (sum(row[column] for row in rows) for column in range(3))
    return marked, deleted, freed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--life", type=float, default=1.0, help="CPU seconds that the server lives at most")
    parser.add_argument("--database-url", default="")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="everturn-kills-"))
    print(f"Killing in {home} with seed {given.seed}.", flush=True)
    kills = FileKills(
        home, kills=given.kills, seed=given.seed, life_s=given.life, database_url=given.database_url
    )

    def say() -> None:
        if kills.kills % 20 == 0:
            print(f"{kills.kills} kills, acts: {dict(kills.done)}", flush=True)

    kills.on_kill = say
    anyio.run(kills.run)
    print(
        f"{kills.kills} kills, cut off: {dict(kills.cut)}, acts: {dict(kills.done)}; every file as it had to be."
    )
    marked, deleted, freed = count_collected(home)
    print(f"Collected: {marked} blobs marked, {deleted} deleted with {freed:,} bytes of packs.")
    print(
        f"Half-written files seen after a restart: {kills.strays}. Files in the data folder: {count_files(home)}"
    )
    environ = os.environ | ({"EVERTURN_DATABASE_URL": given.database_url} if given.database_url else {})
    command = [sys.executable, "-m", "everturn", "doctor", "--home", str(home)]
    sys.exit(subprocess.run(command, env=environ, check=False).returncode)


if __name__ == "__main__":
    main()
