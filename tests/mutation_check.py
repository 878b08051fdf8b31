"""Whether the tests of B and D fail when the line they guard is gone: ``python -m tests.mutation_check``.

Works on a copy. Each mutation changes one place; the tests of its contract must then fail. Prints, for each,
what was changed and the first test that failed; ends with 1 if a mutation survived. ``--only b04`` tries one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MEMORY = "src/everturn/memory/memory.py"
HANDLES = "src/everturn/memory/handles.py"
LEDGER = "src/everturn/store/ledger.py"
ENDINGS = "src/everturn/store/endings.py"
TURNS = "src/everturn/store/turns.py"
QUERIES = "src/everturn/store/sql/queries.sql"
CACHE = "src/everturn/engine/agents.py"
PREFIX = "src/everturn/engine/prefix.py"
LOOP = "src/everturn/engine/loop.py"
ENGINE = "src/everturn/engine/engine.py"


class Mutation(NamedTuple):
    contract: str
    file: str
    old: str
    new: str


MUTATIONS = [
    Mutation("b01", LEDGER, "turn.state is not TurnState.COMPLETED or ", ""),
    Mutation("b01", LEDGER, "    if session.session.private:\n        return None\n", ""),
    Mutation(
        "b01",
        QUERIES,
        "AND o.settled_at IS NULL AND t.is_off_path = 0 ORDER",
        "AND o.settled_at IS NULL ORDER",
    ),
    Mutation(
        "b02",
        ENDINGS,
        "        yield from ledger.owe(tx, session, turn.no, provider, handle, ",
        "        _ = (",
    ),
    Mutation(
        "b02",
        QUERIES,
        "ON CONFLICT (turn_no, provider) DO NOTHING RETURNING",
        "ON CONFLICT (turn_no, provider) DO UPDATE SET settled_at = NULL RETURNING",
    ),
    Mutation(
        "b03",
        LEDGER,
        '            yield q("owed_settle", row[0], begun.provider, tx.now)',
        "            pass",
    ),
    Mutation(
        "b03",
        LEDGER,
        "segment = tuple((row[0], row[1]) for row in rows[:end])",
        "segment = tuple((row[0], row[1]) for row in rows[:1])",
    ),
    Mutation(
        "b04",
        LEDGER,
        "    for turn_id in segment.turns:",
        '    for turn_id in [found[1] for found in (yield q("owed_open", session.no))]:',
    ),
    Mutation("b05", MEMORY, "return self._handles.keep(session_id, given), given", 'return "", given'),
    Mutation(
        "b05",
        LEDGER,
        "    again = _again(rows, commit)\n",
        "    again: list[tuple[int, str, str, str]] = []\n",
    ),
    Mutation("b06", LEDGER, "if row[2:] != (provider, handle)), len(rows))", "if False), len(rows))"),
    Mutation(
        "b07", MEMORY, "        if own is not None:\n", "        if own is not None and given is None:\n"
    ),
    Mutation(
        "b08",
        HANDLES,
        "        if self._current.get(session_id) != name:\n            self._drop",
        "        if True:\n            self._drop",
    ),
    Mutation(
        "b09", HANDLES, "        self._drop(session_id, name)\n        return True", "        return True"
    ),
    Mutation(
        "b09", MEMORY, "if given is not None and given.name == found.provider:", "if given is not None:"
    ),
    Mutation("b10", MEMORY, "            if not wait:\n                return _BUSY\n", ""),
    Mutation(
        "b10",
        MEMORY,
        "while (under_way := self._under_way.get(session_id)) is not None:",
        "while (under_way := self._under_way.get('')) is not None:",
    ),
    Mutation(
        "b10",
        LEDGER,
        'return held_by not in ("", holder) and held_until > now and not is_dead',
        "return False",
    ),
    Mutation("b10", LEDGER, " and held_until > now and not is_dead", " and not is_dead"),
    Mutation(
        "b11",
        MEMORY,
        "            done = await self.commit(owner, session_id)\n            if done.outcome is Outcome.NO",
        "            done = await self.commit(owner, session_id, wait=False)\n            if done.outcome is Outcome.NO",
    ),
    Mutation(
        "b11",
        MEMORY,
        "await call_within(self._clock, limit, lambda: self._drain(count))",
        "await self._drain(count)",
    ),
    Mutation("b11", ENGINE, "            await self._memory.drain()\n", "            pass\n"),
    Mutation("b12", MEMORY, "            await self._settle_for(name)\n", "            pass\n"),
    Mutation(
        "b12",
        CACHE,
        "        if entry.is_free:\n            self._let_go(entry)\n        return True",
        "        return True",
    ),
    Mutation(
        "b12",
        MEMORY,
        "            await self._close(handle)\n\n    async def _settle_for",
        "            pass\n\n    async def _settle_for",
    ),
    Mutation(
        "b13",
        HANDLES,
        "            if self._current.get(session_id) == name:\n                del self._current[session_id]\n        return True",
        "            pass\n        return True",
    ),
    Mutation("b14", ENGINE, "        self._agents.evict(session)\n", "        await self._cache.close()\n"),
    Mutation(
        "b15",
        MEMORY,
        'return self._handles.register(session_id, handle) if session_id else ""',
        "return self._handles.register(session_id, handle)",
    ),
    Mutation("b16", MEMORY, "            if done.outcome is Outcome.NO_HANDLE:\n", "            if False:\n"),
    Mutation("b16", MEMORY, '        await self._contained("start-up", self._settle_left)\n', ""),
    Mutation(
        "b16",
        LEDGER,
        "    again = _again(rows, commit)\n",
        "    again: list[tuple[int, str, str, str]] = []\n",
    ),
    Mutation("b16", MEMORY, "            await self._failed(begun, error.message)\n", ""),
    Mutation(
        "b16",
        MEMORY,
        "await self._settle_all([owing for owing in due if not owing.is_elsewhere], count)",
        "await self._settle_all(due, count)",
    ),
    Mutation("b16", LEDGER, "and held_until > now and not is_dead", "and held_until > now"),
    Mutation(
        "b17",
        MEMORY,
        "                self._handles.forget(session_id)\n                return Committed",
        "                return Committed",
    ),
    Mutation(
        "b18",
        ENGINE,
        'self._start_keeping(f"leave {leaving}", self._memory.settle, owner, leaving)',
        "await self._memory.settle(owner, leaving)",
    ),
    Mutation(
        "b18", ENGINE, 'self._start_keeping(f"leave {leaving}", self._memory.settle, owner, leaving)', "pass"
    ),
    Mutation("d01", PREFIX, "    place = session.key or ", "    place = session.id or "),
    Mutation("d01", PREFIX, 'return f"{session.owner}\\n{place}', 'return f"{place}'),
    Mutation(
        "d02",
        LOOP,
        "            self._agent.completed(turn, [*self._history, *folded.messages])",
        "            pass",
    ),
    Mutation(
        "d02",
        TURNS,
        "        yield from bump(tx, session, is_transcript=False)",
        "        yield from bump(tx, session)",
    ),
    Mutation("d03", CACHE, "            return baseline.version != version", "            return False"),
    Mutation("d03", CACHE, "        if seen != before:\n", "        if False:\n"),
    Mutation(
        "d04",
        CACHE,
        "        baseline = self.baselines.get(session_id)\n        if baseline is not None:\n            return",
        "        baseline = next(iter(self.baselines.values()), None)\n        if baseline is not None:\n            return",
    ),
    Mutation(
        "d05",
        CACHE,
        "        entry.keep(session_id, Baseline(after, kept, size, given))",
        "        for each in {session_id, *entry.baselines}:\n"
        "            entry.keep(each, Baseline(after, kept, size, given))",
    ),
    Mutation("d06", PREFIX, "        own = await self._first_message()\n", "        own = kept[0]\n"),
    Mutation("d07", CACHE, "            if entry.is_pending:\n", "            if False:\n"),
    Mutation(
        "d07",
        CACHE,
        "        if entry is None or entry.is_pending:\n            return False",
        "        if entry is None:\n            return False",
    ),
    Mutation(
        "d07",
        CACHE,
        "        if entry.is_pending or not entry.is_tracked:",
        "        if not entry.is_tracked:",
    ),
    Mutation(
        "d07",
        CACHE,
        "        except BaseException:\n            del self._entries[key]\n            raise",
        "        except BaseException:\n            raise",
    ),
    Mutation(
        "d08",
        CACHE,
        "        return self.version_of_any is not None and self.version_of_any != version",
        "        return False",
    ),
    Mutation(
        "d08", CACHE, "        if entry.is_pending or not entry.is_tracked:", "        if entry.is_pending:"
    ),
    Mutation(
        "d08", CACHE, "        if not version or not self.is_tracked:", "        if not self.is_tracked:"
    ),
    Mutation(
        "d08", CACHE, "        entry.version_of_any = None\n        self._trim()", "        self._trim()"
    ),
    Mutation(
        "d09", CACHE, "while len(self._entries) > self._bounds.agents_max or self.bytes", "while self.bytes"
    ),
    Mutation(
        "d09", CACHE, " or self.bytes > self._bounds.bytes_max:\n            oldest", ":\n            oldest"
    ),
    Mutation(
        "d09",
        CACHE,
        "        return not self.is_pending and self.turns == 0",
        "        return not self.is_pending",
    ),
    Mutation(
        "d09", CACHE, "            if entry.is_free and entry.used_at <= oldest:", "            if False:"
    ),
    Mutation(
        "d09",
        CACHE,
        "            if entry.is_doomed and entry.is_free:\n                self._let_go(entry)\n",
        "",
    ),
    Mutation(
        "d10",
        PREFIX,
        "facts = (plain.system, plain.small, plain.schemas, model, policy)",
        "facts = (plain.system, plain.small, model, policy)",
    ),
    Mutation(
        "d10",
        PREFIX,
        "facts = (plain.system, plain.small, plain.schemas, model, policy)",
        "facts = (plain.system, plain.small, plain.schemas, policy)",
    ),
    Mutation(
        "d10",
        PREFIX,
        "facts = (plain.system, plain.small, plain.schemas, model, policy)",
        "facts = (plain.small, plain.schemas, model, policy)",
    ),
    Mutation("d10", PREFIX, "settings.recall_chars_max, forgotten)", "settings.recall_chars_max)"),
    Mutation("d10", PREFIX, "facts = (plain.system,", "facts = (id(plain), plain.system,"),
    Mutation("d11", CACHE, "        is_missed = usage.cached_tokens == 0", "        is_missed = False"),
    Mutation("d11", CACHE, "now - at > bounds.provider_keeps_s or shared", "shared"),
    Mutation("d11", CACHE, " or shared < bounds.provider_tokens_min:", ":"),
]


def tried(copy: Path, mutation: Mutation) -> str | None:
    """The first test that failed under the mutation; None if all passed."""
    place = copy / mutation.file
    text = place.read_text(encoding="utf-8")
    if mutation.old not in text:
        raise SystemExit(f"{mutation.file} has no {mutation.old!r} any more: bring the mutation up to date.")
    place.write_text(text.replace(mutation.old, mutation.new, 1), encoding="utf-8")
    try:
        pattern = "test_b*.py" if mutation.contract.startswith("b") else "test_d*.py"
        files = sorted(str(file.relative_to(copy)) for file in (copy / "tests/contracts").glob(pattern))
        chosen = f"{mutation.contract} and not postgresql"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-vv",
            "-p",
            "no:cacheprovider",
            "--timeout=20",
            "--timeout-method=thread",
            *files,
        ]
        done = subprocess.run(
            [*command, "-k", chosen],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONUNBUFFERED": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        place.write_text(text, encoding="utf-8")
    if done.returncode == 0:
        return None
    if done.returncode == 5:
        raise SystemExit(f"no test is called {mutation.contract}")
    found = re.search(r"(?:FAILED|ERROR) \S+::(\S+)", done.stdout)
    if found:
        return found[1]
    # A test that hangs is ended by its timeout, which takes the run with it: it is the last one that began.
    begun = re.findall(r"^\S+::(\S+)", done.stdout, re.MULTILINE)
    return f"hung: {begun[-1]}" if begun else "hung before the first test"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a contract, e.g. b04")
    only = parser.parse_args().only
    survived = 0
    with tempfile.TemporaryDirectory(prefix="everturn-mutation-") as folder:
        copy = Path(folder)
        skip = shutil.ignore_patterns("__pycache__", "page", "node_modules")
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", copy / "pyproject.toml")
        for mutation in [each for each in MUTATIONS if each.contract.startswith(only)]:
            failed = tried(copy, mutation)
            survived += failed is None
            change = " ".join(mutation.old.split())[:70]
            print(
                f"{mutation.contract}  {Path(mutation.file).name:<11} {change:<70}  {failed or 'SURVIVED'}",
                flush=True,
            )
    print(f"{survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
