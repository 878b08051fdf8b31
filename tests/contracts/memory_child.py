"""A process with an engine and a memory of its own, to be killed or to share a store with.

``python -m tests.contracts.memory_child URL FOLDER TAKEN MOMENT FATE`` reads commands, one per line:
``say SESSION TEXT`` runs a turn, ``leave SESSION`` commits what it owes. Each answers ``done``. At the moment it
is killed or, with the fate ``stopped``, stops until it is continued.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everturn.domain.clock import SystemClock
from everturn.domain.ids import Ids
from everturn.domain.memory import Segment
from everturn.domain.messages import Message, Role
from everturn.domain.probe import Moment, Probe
from everturn.domain.runtime import Runtime
from everturn.memory import Memory, MemorySettings, Providers
from everturn.store import Store, open_store
from everturn.testing import KillingProbe, ScriptedModel
from everturn.testing.harness import OWNER, open_harness, quiet_settings

NAME = "file"


class FileProvider:
    """Takes segments into a file, synced, one line each; a key that is in it is not taken in again."""

    name = NAME

    def __init__(self, taken: Path) -> None:
        self._taken = taken

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        return ""

    async def observe(self, owner: str, session_id: str, messages: Sequence[Message]) -> None:
        pass

    async def commit(self, segment: Segment) -> None:
        words = [message.text for message in segment.messages if message.role is Role.USER]
        is_new = segment.key not in [line["key"] for line in taken_in(self._taken) if line["is_new"]]
        with self._taken.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": segment.key, "words": words, "is_new": is_new}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    async def close(self) -> None:
        pass


def taken_in(taken: Path) -> list[dict[str, object]]:
    if not taken.exists():
        return []
    return [json.loads(line) for line in taken.read_text(encoding="utf-8").splitlines()]


def memory_into(store: Store, taken: Path, probe: Probe | None = None, **settings: Any) -> Memory:
    clock = SystemClock()
    given = MemorySettings(provider=NAME, **settings)
    providers = Providers({NAME: lambda: FileProvider(taken)}, {})
    return Memory(store.ledger, providers, Runtime(clock, Ids(clock), probe or Probe()), settings=given)


async def live(url: str, folder: Path, taken: Path, probe: Probe) -> None:
    clock = SystemClock()
    model = ScriptedModel(clock=clock, then="fine")
    async with open_store(url, data_dir=folder, probe=probe) as store:
        memory = memory_into(store, taken, probe)
        async with open_harness(
            store, clock=clock, model=model, memory=memory, probe=probe, settings=quiet_settings()
        ) as h:
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                command, session_id, *rest = line.split(maxsplit=2)
                if command == "say":
                    session = await store.sessions.get(OWNER, session_id)
                    await h.run(session, rest[0].strip())
                else:
                    await memory.commit_session(OWNER, session_id)
                print("done", flush=True)


def stop(status: int) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def main(url: str, folder: str, taken: str, moment: str, fate: str) -> None:
    end = stop if fate == "stopped" else os._exit
    probe = KillingProbe(Moment(moment), kill=end) if moment else Probe()
    asyncio.run(live(url, Path(folder), Path(taken), probe))


if __name__ == "__main__":
    main(*sys.argv[1:])
