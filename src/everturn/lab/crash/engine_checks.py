"""After a life with the engine was cut off: what was acknowledged, effects, files and memory."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from everturn.domain.messages import Outcome, Result
from everturn.lab.crash.checks import After, all_sessions
from everturn.lab.crash.engine_life import COUNTED, PICTURE, effects_of, memories_of, survive, workspaces_of
from everturn.lab.crash.notes import Note
from everturn.store import Store, open_store
from everturn.testing.acting import ME


async def check_engine_life(store_url: str, data_dir: Path, notes: list[Note]) -> None:
    async with open_store(store_url, data_dir=data_dir) as store:
        after = After(store, notes)
        await after.check_acknowledged()
        await survive(store, data_dir)
        await after.check_acknowledged()
        await after.check_sound()
        await check_effects(store, data_dir)
        await check_files(store, notes, data_dir)
        check_memories(notes, data_dir)


async def check_files(store: Store, notes: list[Note], data_dir: Path) -> None:
    """The folder of a session goes with its conversation, whenever the undo was cut off."""
    for note in notes:
        if note["what"] == "drawn":
            session = await store.sessions.get(ME, note["session"])
            picture = workspaces_of(data_dir) / session.id / PICTURE
            assert picture.exists() == (session.head is not None)
        if note["what"] == "undone":
            assert (await store.sessions.get(ME, note["session"])).head is None


async def check_effects(store: Store, data_dir: Path) -> None:
    """No call took effect twice; one that did has a result, or is said to be of unknown outcome."""
    effects = effects_of(data_dir)
    assert all(count == 1 for count in effects.values()), effects
    for session_id in await all_sessions(store):
        _, _, messages = await store.transcript.export(ME, session_id)
        parts = [(m.turn_id, part) for m in messages for part in m.parts]
        results = {f"{turn}:{part.call_id}": part for turn, part in parts if isinstance(part, Result)}
        for key, result in results.items():
            if result.outcome is Outcome.OK and result.name in COUNTED:
                assert effects.get(key) == 1 or "took effect" in result.text, result
            if key in effects:
                assert result.outcome in (Outcome.OK, Outcome.UNKNOWN, Outcome.CANCELLED), result


def check_memories(notes: list[Note], data_dir: Path) -> None:
    """What memory is owed reached the provider, always under the same key."""
    keys: dict[str, set[str]] = defaultdict(set)
    for key, turns in memories_of(data_dir):
        for turn in turns:
            keys[turn].add(key)
    for note in notes:
        if note["what"] in ("owed", "remembered"):
            assert len(keys[note["turn"]]) == 1, keys
