"""People write over all platforms at once while servers are killed and platforms fail; then every message is
counted: one turn each, one answer each or marked, in order, none lost (F01, F02, F03)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from everturn.cli.common import OWNER
from everturn.delivery.intake import LATE
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import PartState
from everturn.domain.messages import Role
from everturn.domain.turns import ENDED, Turn, TurnState
from everturn.store import Store, open_store
from everturn.testing.ports import free_port
from everturn.testing.waiting import within
from everturn.testing.wires import WireAnswer, WireRequest, WireServer, openai_answer, served
from tests.reach.chaos import Faults, Killer, Strike
from tests.reach.platforms import ANSWER, Discord, Mail, Outside, Slack, Telegram, Webhook, answered

_ROOT = Path(__file__).parents[2]
_REPEAT = "This may be a repeat:"
_OVER = {PartState.SENT, PartState.HELD, PartState.UNDELIVERED}
_LEASE_S = 8  # on PostgreSQL: how soon a killed server is noticed


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    kills: int
    chats: int = 3  # of each platform
    per_s: float = 0.0  # how fast people write; 0: all at once
    fault_rate: float = 0.05  # of requests
    servers: int = 1
    seed: int = 1
    database_url: str = ""
    live: bool = False
    longest_s: float = 280.0


class Figures(msgspec.Struct):
    kills: Counter[str]
    faults: Counter[str]
    turns: int = 0
    late: int = 0
    once: int = 0
    repeated: int = 0  # with the words that say so
    open: int = 0  # held or undelivered, or the turn was interrupted: a person sees it


class EchoModel(WireServer):
    """Answers each message by its own words."""

    def answer(self, request: WireRequest) -> WireAnswer:
        self.requests.clear()
        if not request.path.endswith("/chat/completions"):
            return WireAnswer([b'{"data": []}'], headers={"content-type": "application/json"})
        asked = [json.dumps(one["content"]) for one in request.json["messages"] if one["role"] == "user"]
        return WireAnswer(openai_answer([ANSWER, _number(asked[-1])]))


class Campaign:
    def __init__(self, home: Path, plan: Plan, say: Callable[[str], None] = lambda _: None) -> None:
        self._home = home
        self._plan = plan
        self._say = say
        self._chance = random.Random(plan.seed)
        self._killer = Killer(self._chance)
        self._faults = Faults(random.Random(plan.seed + 1))
        self._ports = [free_port() for _ in range(plan.servers)]
        hooks = [f"http://127.0.0.1:{port}/hooks/webhook" for port in self._ports]
        given = self._killer, self._faults
        self._outsides: list[Outside] = [
            Telegram(*given),
            Slack(*given),
            Discord(*given),
            Mail(*given),
            Webhook(*given, hooks),
        ]
        self._texts: dict[str, tuple[Outside, int]] = {}  # where each was written

    async def run(self) -> Figures:
        """Raises AssertionError if a message was lost, answered twice unmarked, or overtaken."""
        plan = self._plan
        url = plan.database_url or f"sqlite://{self._home / 'everturn.db'}"
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(served(EchoModel))
            for outside in self._outsides:
                await stack.enter_async_context(outside.serve())
            self._write_config()
            environ = self._environment(model.url, url)
            store = await stack.enter_async_context(open_store(url, data_dir=self._home, clock=SystemClock()))
            for port in self._ports:
                await stack.enter_async_context(self._served(port, environ))
            with within("everything is answered", plan.longest_s):
                await self._let_people_write()
                while not await self._is_settled(store):
                    await asyncio.sleep(0.5 if plan.messages < 100 else 3)
            return await self._check(store)

    async def _let_people_write(self) -> None:
        """First one message in each chat, in peace: Discord keeps nothing for a bot that was never there."""
        plan = self._plan
        first = len(self._outsides) * plan.chats
        for number in range(first):
            self._write(number)
        while not all(outside.read(chat) for outside, chat in self._texts.values()):
            await asyncio.sleep(0.1)
        self._say(f"{first} chats")
        self._faults.rate = plan.fault_rate
        rest = range(first, plan.messages)
        size = max(1, len(rest) // max(1, plan.kills))
        for kill, start in enumerate(range(0, len(rest), size)):
            await self._write_and_kill(rest[start : start + size], kill)

    async def _write_and_kill(self, numbers: Sequence[int], kill: int) -> None:
        """Kill a server at the next moment of its kind after one of the messages, and let one platform drop its
        connections."""
        struck_after, dropped_after = self._chance.choice(numbers), self._chance.choice(numbers)
        is_killed = kill < self._plan.kills
        for number in numbers:
            if number == struck_after and is_killed:
                self._killer.prepare(list(Strike)[kill % len(Strike)])
            self._write(number)
            self._killer.strikes(Strike.ANY)
            if number == dropped_after:
                await self._chance.choice(self._outsides).drop_all()
            if self._plan.per_s:
                await asyncio.sleep(1 / self._plan.per_s)
        while self._killer.is_due:
            self._killer.strikes(Strike.ANY)
            await asyncio.sleep(0.05)
        self._say(f"{len(self._texts)} messages, {self._killer.done.total()} kills")

    def _write(self, number: int) -> None:
        outside = self._outsides[number % len(self._outsides)]
        chat = number // len(self._outsides) % self._plan.chats
        text = f"m{number:04}"
        self._texts[text] = outside, chat
        outside.write(chat, text)

    # --- the servers ---------------------------------------------------------------------------------

    def _write_config(self) -> None:
        lines = ["[store]", f"lease_s = {_LEASE_S}"]
        for outside in self._outsides:
            lines += [f"[gateway.{outside.name}]", f'platform = "{outside.name}"']
            lines += [f"{name} = {json.dumps(value)}" for name, value in outside.options().items()]
            lines += ["live = true"] if self._plan.live else []
        (self._home / "config.toml").write_text("\n".join(lines))

    def _environment(self, model: str, url: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EVERTURN")}
        secrets = {
            f"EVERTURN_GATEWAY_{outside.name}_{name}".upper(): value
            for outside in self._outsides
            for name, value in outside.secrets().items()
        }
        own = {
            "EVERTURN_HOME": str(self._home),
            "EVERTURN_DATABASE_URL": url,
            "EVERTURN_MODEL": "openai:echo",
            "OPENAI_BASE_URL": f"{model}/v1",
            "OPENAI_API_KEY": "sk-reach-00000000",
        }
        return kept | own | secrets

    @asynccontextmanager
    async def _served(self, port: int, environ: Mapping[str, str]) -> AsyncIterator[None]:
        """Servers on this port, one after the other."""
        with (self._home / f"server-{port}.log").open("w") as log:
            parent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.reach.server", str(port)),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=dict(environ),
                cwd=_ROOT,
                start_new_session=True,
            )
        following = asyncio.create_task(self._follow(parent.stdout))
        try:
            yield
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
            await parent.wait()
            await following

    async def _follow(self, printed: asyncio.StreamReader | None) -> None:
        assert printed is not None
        while line := await printed.readline():
            if line.strip().isdigit():  # the server itself prints its address
                self._killer.running.append(int(line))

    # --- counting ------------------------------------------------------------------------------------

    async def _is_settled(self, store: Store) -> bool:
        """Whether each message is a turn that has ended, and each turn's answer was sent or waits for a
        person."""
        pending = sum(outside.pending() for outside in self._outsides)
        turns = [turn for session in await _sessions(store) for _, turn in session]
        self._say(f"{len(turns)} turns, {pending} not acknowledged")
        if pending:
            return False
        if len(turns) < self._plan.messages or any(turn.state not in ENDED for turn in turns):
            return False
        for turn in turns:
            states = {part.state for part in await store.delivery.outbox.of_turn(OWNER, turn.id)}
            if turn.state is not TurnState.INTERRUPTED and not (states and states <= _OVER):
                return False
        return True

    async def _check(self, store: Store) -> Figures:
        sessions = await _sessions(store)
        figures = Figures(Counter(self._killer.done), self._faults.done)
        asked = Counter(_number(text) for session in sessions for text, _ in session)
        assert asked == Counter(list(self._texts)), "one turn each"
        figures.turns = asked.total()
        for session in sessions:
            outside, chat = self._texts[_number(session[0][0])]
            figures.late += _check_order([text for text, _ in session])
            read = [text for text in outside.read(chat) if ANSWER in text]
            open_turns = {_number(text) for text, turn in session if await _is_open(store, turn)}
            figures.open += len(open_turns)
            _check_answers([_number(text) for text, _ in session], read, open_turns)
            figures.repeated += sum(_REPEAT in text for text in read)
            figures.once += sum(count == 1 for count in Counter(map(answered, read)).values())
        return figures


def _check_order(texts: Sequence[str]) -> int:
    """Turns of a chat are in the order in which its messages were written, except those that say that they
    came late; how many that are."""
    newest, late = "", 0
    for text in texts:
        number = _number(text)
        if number < newest:
            assert LATE in text, f"{number} after {newest}"
            late += 1
        newest = max(newest, number)
    return late


def _check_answers(asked: Sequence[str], read: Sequence[str], open_turns: set[str]) -> None:
    plain = Counter(answered(text) for text in read if _REPEAT not in text)
    marked = Counter(answered(text) for text in read if _REPEAT in text)
    for number in asked:
        assert plain[number] <= 1, f"{number} was answered twice, and not marked"
        assert plain[number] + marked[number] or number in open_turns, f"{number} has no answer"
    places = [asked.index(answered(text)) for text in read]
    assert places == sorted(places), "answers are in the order of their turns"


async def _is_open(store: Store, turn: Turn) -> bool:
    parts = await store.delivery.outbox.of_turn(OWNER, turn.id)
    return turn.state is TurnState.INTERRUPTED or any(part.state != PartState.SENT for part in parts)


async def _sessions(store: Store) -> list[list[tuple[str, Turn]]]:
    """The turns of each session, with what was written."""
    found: list[list[tuple[str, Turn]]] = []
    cursor = None
    while True:
        page = await store.sessions.list(OWNER, cursor=cursor)
        for session in page.items:
            shown = await store.transcript.page(OWNER, session.id, limit=100)
            texts = {one.turn_id: one.text for one in shown.messages.items if one.role is Role.USER}
            found.append([(texts[turn.id], turn) for turn in shown.turns])
        cursor = page.cursor
        if cursor is None:
            return found


def _number(text: str) -> str:
    """The first word that is a message's number."""
    at = text.index("m0") if "m0" in text else text.index("m")
    return text[at : at + 5]
