"""Kills the process that serves an account, before its acknowledgements and before its receipts, and counts what
people saw in the end.

``EVERTURN_MESSAGES=1000`` makes it the long run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import PartState
from everturn.domain.messages import Role
from everturn.domain.turns import ENDED, Turn, TurnState
from everturn.store import Store, open_store
from everturn.testing.harness import OWNER
from everturn.testing.waiting import within

MESSAGES = int(os.environ.get("EVERTURN_MESSAGES", "12"))
CHATS = max(3, MESSAGES // 25)
TEXTS = [f"m{number:04}" for number in range(MESSAGES)]
_KILL_EVERY = 4 if MESSAGES < 100 else 40  # so many sends
_KILLS_MAX = max(2, min(16, MESSAGES // 50))  # half of them at acknowledgements, of which there are few
_LONGEST_S = 280 if MESSAGES < 100 else 1_000  # loading a client alone takes seconds of a busy machine
_LOOK_S = 0.1 if MESSAGES < 100 else 5  # looking at a thousand turns takes a while
_REPEAT = "This may be a repeat:"
_ANSWER = "answer to "


class Killer:
    """A service asks it at each acknowledgement and each send; it kills at both, in turns."""

    def __init__(self) -> None:
        self.process = 0
        self.kills = 0
        self.sends = 0

    def strikes_before_acknowledgement(self) -> bool:
        return self.kills % 2 == 0 and self._strike()

    def strikes_before_receipt(self) -> bool:
        self.sends += 1
        return self.sends % _KILL_EVERY == 0 and self.kills % 2 == 1 and self._strike()

    def _strike(self) -> bool:
        if self.kills == _KILLS_MAX or not self.process:
            return False
        self.kills += 1
        os.kill(self.process, signal.SIGKILL)
        self.process = 0
        return True


async def survive(
    killer: Killer,
    data_dir: Path,
    account: Sequence[str],
    unread: Callable[[], int],
    read: Callable[[int], Sequence[str]],
) -> None:
    """Serve an account until every message is answered, then check that each was answered once or marked.

    ``account``: platform and ports, for ``platform_child``. ``unread``: how many messages are not acknowledged.
    ``read``: what people in a chat have read, in order.
    """
    url = f"sqlite://{data_dir / 'everturn.db'}"
    async with open_store(url, data_dir=data_dir, clock=SystemClock()) as store:
        async with _served(killer, url, data_dir, account):
            with within("all is answered and sent", _LONGEST_S):
                while unread() or not await _is_settled(store):
                    await anyio.sleep(_LOOK_S)
        turns = await _turns(store)
        open_turns = [text for text, turn in turns if await _is_marked(store, turn)]
    assert killer.kills == _KILLS_MAX
    assert sorted(text for text, _ in turns) == TEXTS, "a turn each"
    answers = [[text for text in read(chat) if _ANSWER in text] for chat in range(CHATS)]
    _check_once_or_marked([text for chat in answers for text in chat], open_turns)
    for chat in answers:
        order = [_number(text) for text in chat]
        assert order == sorted(order), "in their order"


def _check_once_or_marked(answers: Sequence[str], open_turns: Sequence[str]) -> None:
    plain = Counter(_number(text) for text in answers if _REPEAT not in text)
    marked = Counter(_number(text) for text in answers if _REPEAT in text)
    for text in TEXTS:
        assert plain[text] <= 1, "twice and not marked"
        assert plain[text] + marked[text] >= 1 or text in open_turns, "no answer"


async def _is_marked(store: Store, turn: Turn) -> bool:
    """Whether a person sees that the turn waits for a decision: to resume it, or to send its answer again."""
    parts = await store.delivery.outbox.of_turn(OWNER, turn.id)
    return turn.state is TurnState.INTERRUPTED or any(part.state is PartState.HELD for part in parts)


def _number(text: str) -> str:
    return text.partition(_ANSWER)[2].split()[0]


@asynccontextmanager
async def _served(killer: Killer, url: str, folder: Path, account: Sequence[str]) -> AsyncIterator[None]:
    """Processes that serve the account, one after the other."""
    command = ["-m", "tests.contracts.platform_child", url, str(folder), *account]
    parent = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )

    async def follow() -> None:
        assert parent.stdout is not None
        while line := await parent.stdout.readline():
            killer.process = int(line)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        await parent.wait()
        await following


async def _turns(store: Store) -> list[tuple[str, Turn]]:
    """All turns with what was written."""
    found: list[tuple[str, Turn]] = []
    cursor = None
    while True:
        page = await store.sessions.list(OWNER, cursor=cursor)
        for session in page.items:
            shown = await store.transcript.page(OWNER, session.id, limit=100)
            texts = {one.turn_id: one.text for one in shown.messages.items if one.role is Role.USER}
            found += [(texts[turn.id], turn) for turn in shown.turns]
        cursor = page.cursor
        if cursor is None:
            return found


async def _is_settled(store: Store) -> bool:
    """Whether each message has a turn that has ended, and each turn a reply that was sent."""
    turns = [turn for _, turn in await _turns(store)]
    if len(turns) < MESSAGES or any(turn.state not in ENDED for turn in turns):
        return False
    for turn in turns:
        states = [part.state for part in await store.delivery.outbox.of_turn(OWNER, turn.id)]
        if turn.state is not TurnState.INTERRUPTED and not _is_over(states):
            return False
    return True


def _is_over(states: Sequence[PartState]) -> bool:
    """Sent, or held for a person, because its repeat was killed as well."""
    return bool(states) and set(states) <= {PartState.SENT, PartState.HELD}
