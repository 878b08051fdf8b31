"""Whether the tests of B and D fail when the line they guard is gone: ``python -m tests.mutation_check``.

Works on a copy. Each mutation changes one place; the tests of its contract must then fail. Prints, for each,
what was changed, the first test that failed and what it said; ends with 1 if a mutation survived. ``--only b04``
tries one contract, ``--file ledger`` the mutations of one file, ``--store postgresql`` the other store.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COMMITS = "src/everturn/memory/commits.py"
MEMORY = "src/everturn/memory/memory.py"
HANDLES = "src/everturn/memory/handles.py"
LEDGER = "src/everturn/store/ledger.py"
ENDINGS = "src/everturn/store/turns/endings.py"
TURNS = "src/everturn/store/turns/turns.py"
QUERIES = "src/everturn/store/sql/queries.sql"
CACHE = "src/everturn/engine/agents.py"
PREFIX = "src/everturn/engine/prefix.py"
LOOP = "src/everturn/engine/loop.py"
ENGINE = "src/everturn/engine/engine.py"
STEP = "src/everturn/engine/step.py"
STORES = ("sqlite", "postgresql")


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
        "AND o.settled_at IS NULL AND t.is_off_path <> 1 ORDER",
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
        '            yield q("owed_settle", turn_no, begun.provider, tx.now)',
        "            pass",
    ),
    Mutation(
        "b03",
        LEDGER,
        "segment = tuple(takewhile(lambda row: (row.provider, row.handle) == (provider, handle), rows))",
        "segment = (rows[0],)",
    ),
    Mutation(
        "b04",
        LEDGER,
        "    for turn_id in segment.turns:",
        '    for turn_id in [found[1] for found in (yield q("owed_open", session.no))]:',
    ),
    Mutation("b05", COMMITS, "return self._handles.keep(session_id, given), given", 'return "", given'),
    Mutation(
        "b05",
        LEDGER,
        "    again = _again(rows, commit)\n",
        "    again: list[OwedColumns] = []\n",
    ),
    Mutation("b06", LEDGER, "(row.provider, row.handle) == (provider, handle), rows", "True, rows"),
    Mutation(
        "b07", COMMITS, "        if own is not None:\n", "        if own is not None and given is None:\n"
    ),
    Mutation(
        "b08",
        HANDLES,
        "            if self._current.get(session_id) != name and self._is_older",
        "            if self._is_older",
    ),
    Mutation(
        "b09", HANDLES, "        self._drop(session_id, name)\n        return True", "        return True"
    ),
    Mutation(
        "b09", COMMITS, "if given is not None and given.name == found.provider:", "if given is not None:"
    ),
    Mutation("b10", COMMITS, "            if not wait:\n                return _BUSY\n", ""),
    Mutation(
        "b10",
        COMMITS,
        "while (under_way := self._under_way.get(session_id)) is not None:",
        "while (under_way := self._under_way.get('')) is not None:",
    ),
    Mutation(
        "b10",
        LEDGER,
        'return commit.holder not in ("", holder) and commit.held_until > now and not commit.is_dead',
        "return False",
    ),
    Mutation("b10", LEDGER, " and commit.held_until > now and not commit.is_dead", " and not commit.is_dead"),
    Mutation(
        "b11",
        MEMORY,
        "            done = await self.commit(owner, session_id)\n            if done.outcome is CommitOutcome.NO",
        "            done = await self.commit(owner, session_id, wait=False)\n            if done.outcome is CommitOutcome.NO",
    ),
    Mutation(
        "b11",
        MEMORY,
        "await call_within(\n"
        '                self._clock, limit, lambda: self._log_store_errors("drain", self._drain, rounds)\n'
        "            )\n",
        'await self._log_store_errors("drain", self._drain, rounds)\n',
    ),
    Mutation("b11", ENGINE, "            await self._memory.drain()\n", "            pass\n"),
    Mutation("b12", MEMORY, "            await self._commit_owed_to(name)\n", "            pass\n"),
    Mutation(
        "b12",
        CACHE,
        "        if entry.is_free:\n            self._let_go(entry)\n        return True",
        "        return True",
    ),
    Mutation(
        "b12",
        MEMORY,
        "            await self._close(handle)\n\n    async def _commit_owed_to",
        "            pass\n\n    async def _commit_owed_to",
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
        COMMITS,
        'return self._handles.register(session_id, handle) if session_id else ""',
        "return self._handles.register(session_id, handle)",
    ),
    Mutation(
        "b12",
        MEMORY,
        "            await self._commit_each(new, self.commit, rounds)\n",
        "            await self._commit_each(new, self.commit, rounds)\n            return\n",
    ),
    Mutation(
        "b16", MEMORY, "            if done.outcome is CommitOutcome.NO_HANDLE:\n", "            if False:\n"
    ),
    Mutation("b16", MEMORY, '        await self._log_store_errors("start-up", self._commit_leftovers)\n', ""),
    Mutation(
        "b16",
        LEDGER,
        "    again = _again(rows, commit)\n",
        "    again: list[OwedColumns] = []\n",
    ),
    Mutation("b16", COMMITS, "            await self._record_failure(begun, error.message)\n", ""),
    Mutation(
        "b16",
        MEMORY,
        "            quiet_since=quiet_since,\n            is_elsewhere=False,\n",
        "            quiet_since=quiet_since,\n",
    ),
    Mutation(
        "b16", LEDGER, "and commit.held_until > now and not commit.is_dead", "and commit.held_until > now"
    ),
    Mutation("b17", MEMORY, "                self._handles.release_session(session_id, moment)\n", ""),
    Mutation(
        "b18",
        ENGINE,
        'self._start_keeping(f"leave {leaving}", self._memory.commit_session, owner, leaving)',
        "await self._memory.commit_session(owner, leaving)",
    ),
    Mutation(
        "b18",
        ENGINE,
        'self._start_keeping(f"leave {leaving}", self._memory.commit_session, owner, leaving)',
        "pass",
    ),
    Mutation("d01", PREFIX, "    place = session.key or ", "    place = session.id or "),
    Mutation("d01", PREFIX, 'return f"{len(session.owner)} {session.owner}\\n{place}', 'return f"{place}'),
    Mutation("d01", PREFIX, 'return f"{len(session.owner)} {session.owner}', 'return f"{session.owner}'),
    Mutation(
        "d02",
        LOOP,
        "            self._agent.update_baseline(completed, [*self._history, *folded.messages])",
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
        "        for each in {session_id, *entry.baselines}:\n            entry.keep(each, Baseline(after, kept, size, given))",
    ),
    Mutation("d06", PREFIX, "        return [*kept, self._own]\n", "        return [*kept, kept[0]]\n"),
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
        "d09", CACHE, "if len(self._entries) <= self._bounds.agents_max and self.bytes", "if self.bytes"
    ),
    Mutation(
        "d09",
        CACHE,
        " and self.bytes <= self._bounds.bytes_max:\n                return",
        ":\n                return",
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
    Mutation(
        "b01", ENDINGS, "provider is not None and not session.session.private and", "provider is not None and"
    ),
    Mutation("b01", LEDGER, " or turn.turn.kind is not TurnKind.MESSAGE", ""),
    Mutation("b01", LEDGER, "is_ours = turn.session_no == session.no", "is_ours = True"),
    Mutation("b01", LEDGER, "if session is None or session.session.private:", "if session is None:"),
    Mutation("b01", QUERIES, "WHERE s.private = 0 AND (CAST($7", "WHERE (CAST($7"),
    Mutation(
        "b01",
        QUERIES,
        "WHERE w.settled_at IS NULL AND t.is_off_path <> 1 AND ($1",
        "WHERE w.settled_at IS NULL AND ($1",
    ),
    Mutation("b01", LEDGER, "if is_kept and parts:", "if parts:"),
    Mutation("b01", LEDGER, "isinstance(part, Text) and not part.is_abandoned", "isinstance(part, Text)"),
    Mutation("b05", LEDGER, "    if handle != plan.handle:\n", "    if False:\n"),
    Mutation(
        "b06",
        HANDLES,
        "            self._use(self._known[before], session_id)\n",
        "            self._drop(session_id, before)\n",
    ),
    Mutation(
        "b07",
        QUERIES,
        "AND t.is_off_path <> 1 ORDER BY o.owed_at, o.turn_no",
        "AND t.is_off_path <> 1 ORDER BY o.owed_at DESC, o.turn_no DESC",
    ),
    Mutation(
        "b10",
        LEDGER,
        "if session is None or plan is None or plan.is_held:",
        "if session is None or plan is None:",
    ),
    Mutation("b10", COMMITS, "            if found.is_held:\n                return _BUSY\n", ""),
    Mutation(
        "b10",
        COMMITS,
        "            await under_way.ended.wait()\n        # No await",
        "            return _BUSY\n        # No await",
    ),
    Mutation(
        "b11",
        MEMORY,
        "            await self._commit_each(new, self.commit_session, rounds)\n\n    async def close",
        "            await self._commit_each(new, self.commit_session, rounds)\n            return\n\n    async def close",
    ),
    Mutation("b11", MEMORY, "if each.turns > self.stuck.get(each.session_id, 0)]", "]"),
    Mutation(
        "b11", QUERIES, " AND (CAST($7 AS BIGINT) = 1 OR o.elsewhere = 0)", " AND CAST($7 AS BIGINT) >= 0"
    ),
    Mutation(
        "b11",
        COMMITS,
        "                    await self._record_failure(\n"
        '                        begun, "It was interrupted; whether it was taken in is unknown."\n'
        "                    )\n",
        "                    pass\n",
    ),
    Mutation("b12", MEMORY, "            await busy.ended.wait()\n", "            break\n"),
    Mutation(
        "b12",
        MEMORY,
        "        if self._handles.detach(handle):\n            # Whoever",
        "        self._handles.detach(handle)\n        if True:\n            # Whoever",
    ),
    Mutation(
        "b12",
        MEMORY,
        "limit=self.settings.owing_max + len(rounds.stuck))\n",
        "limit=self.settings.owing_max)\n",
    ),
    Mutation(
        "b12",
        ENGINE,
        "            await self._memory.release(warm.handle, is_last=self._is_stopped)",
        "            pass",
    ),
    Mutation(
        "b13",
        HANDLES,
        "name = self._names.pop(id(handle), None)\n        if name is None:\n            return False",
        "name = self._names.get(id(handle))\n        if name is None or name not in self._known:\n            return False",
    ),
    Mutation(
        "b15",
        COMMITS,
        "        if not session_id or self.provider is None:\n",
        "        if self.provider is None:\n",
    ),
    Mutation(
        "b15", COMMITS, "return bool(session_id) and await self.ledger.next", "return await self.ledger.next"
    ),
    Mutation("b15", COMMITS, "        if not session_id:\n            return NOTHING\n", ""),
    Mutation(
        "b15",
        LEDGER,
        '    if not (yield q("session_row", session_id, owner)):\n        return None\n',
        "",
    ),
    Mutation(
        "b16",
        QUERIES,
        "attempts = CASE WHEN commits.from_turn = excluded.from_turn AND commits.to_turn = excluded.to_turn\n    THEN commits.attempts + 1 ELSE 1 END",
        "attempts = 1",
    ),
    Mutation(
        "b16",
        LEDGER,
        "from_turn=commit.from_turn,\n            to_turn=commit.to_turn,",
        "from_turn=again[0].turn_id,\n            to_turn=again[-1].turn_id,",
    ),
    Mutation(
        "b16",
        MEMORY,
        "        return await self.commit(owner, session_id, spare)",
        "        return await self.commit(owner, session_id)",
    ),
    Mutation(
        "b16",
        QUERIES,
        "AND l.updated_at <= CAST($4 AS BIGINT) AND s.active_no IS NULL)",
        "AND l.updated_at <= CAST($4 AS BIGINT))",
    ),
    Mutation("b16", QUERIES, "coalesce(c.retry_at, 0) <= CAST($5 AS BIGINT)", "0 <= CAST($5 AS BIGINT)"),
    Mutation(
        "b16", LEDGER, '    yield q("commit_drop", session.no, segment.from_turn, segment.to_turn)\n', ""
    ),
    Mutation("b17", ENGINE, "            self._memory.forget(session_id)\n", "            pass\n"),
    Mutation("b17", COMMITS, "            del self._under_way[session_id]\n", "            pass\n"),
    Mutation(
        "b17",
        HANDLES,
        "            del self._known[name]\n            del self._names[id(known.handle)]",
        "            pass",
    ),
    Mutation(
        "d02",
        PREFIX,
        "        if not kept or kept[-1].turn_id == turn.id:\n            return list(kept)\n",
        "        if True:\n            return await load_history(self._services, session, turn)\n",
    ),
    Mutation(
        "d03",
        CACHE,
        "            entry.drop(session_id)\n            entry.read_again(session_id)\n            return tuple(await load())",
        "            return entry.baselines[session_id].history",
    ),
    Mutation(
        "d07", CACHE, "        finally:\n            entry.ready.set()\n", "        entry.ready.set()\n"
    ),
    Mutation("d08", CACHE, "        entry.is_tracked = version is not None\n", ""),
    Mutation(
        "d09",
        CACHE,
        "                self._let_go(entry)\n            self._trim()\n",
        "                self._let_go(entry)\n",
    ),
    Mutation(
        "d09",
        CACHE,
        '        while self.bytes > self._bounds.bytes_max and self._drop_history():\n            self.counts["histories_dropped"] += 1\n',
        "",
    ),
    Mutation("d09", CACHE, "        self._entries.move_to_end(entry.key)\n", ""),
    Mutation(
        "d09",
        CACHE,
        "            if entry.retiring is not None:\n                await entry.retiring.wait()\n                continue\n",
        "",
    ),
    Mutation(
        "d09",
        CACHE,
        "                entry.is_retired = True\n",
        "                entry.is_retired = True\n                await self._retire(entry.agent)  # type: ignore[arg-type]\n",
    ),
    Mutation(
        "d09",
        CACHE,
        "            await self._clock.sleep(self._bounds.look_s)\n            self.look()",
        "            await self._clock.sleep(self._bounds.look_s)",
    ),
    Mutation(
        "d10",
        PREFIX,
        "facts = (plain.system, plain.small, plain.schemas, model, policy)",
        "facts = (plain.system, plain.schemas, model, policy)",
    ),
    Mutation(
        "d10",
        PREFIX,
        "policy = (settings.provider, settings.profile_facts_max,",
        "policy = (settings.profile_facts_max,",
    ),
    Mutation("d10", CACHE, "            if entry.signature != signature:\n", "            if False:\n"),
    Mutation("d11", CACHE, "if last_session == session_id else prefix_tokens", ""),
    Mutation("d11", CACHE, "max(prefix_tokens, last_tokens) if", "prefix_tokens if"),
    Mutation("d11", CACHE, "if before is None or usage.cached_tokens is None:", "if before is None:"),
    Mutation("d11", STEP, "self._agent.missed_cache(model, finish.usage)),", "False),"),
    Mutation(
        "b04",
        COMMITS,
        "        if not left:\n            self._handles.drop_idle",
        "        if True:\n            self._handles.drop_idle",
    ),
    Mutation(
        "b04",
        MEMORY,
        "            if done.outcome is CommitOutcome.NOTHING:\n",
        "            if not done.left:\n",
    ),
    Mutation(
        "b05",
        HANDLES,
        "return used <= moment and (name, session_id) not in self._held",
        "return (name, session_id) not in self._held",
    ),
    Mutation(
        "b05",
        HANDLES,
        "return used <= moment and (name, session_id) not in self._held",
        "return used <= moment",
    ),
    Mutation(
        "b05",
        HANDLES,
        "                self._use(known, session_id)\n            self._held",
        "                pass\n            self._held",
    ),
    Mutation("b11", MEMORY, "await self._owing(more=len(rounds.stuck))", "await self._owing()"),
    Mutation(
        "b11",
        MEMORY,
        "            self.stuck.pop(owing.session_id, None)\n        else:\n            self.stuck",
        "            self.stuck[owing.session_id] = owing.turns\n        else:\n            self.stuck",
    ),
    Mutation(
        "b11",
        MEMORY,
        '        left = await self._log_store_errors("drain", self._owing)\n',
        "        left = await self._owing()\n",
    ),
    Mutation(
        "b11",
        ENGINE,
        "            self._keeping.cancel_scope.cancel()\n            self._keeping = None\n",
        "            pass\n",
    ),
    Mutation("b12", COMMITS, "            own.handle, handle = picked\n", "            _, handle = picked\n"),
    Mutation(
        "b12",
        MEMORY,
        "        if self._handles.detach(handle):\n",
        "        self._handles.detach(handle)\n        if True:\n",
    ),
    Mutation(
        "b17",
        PREFIX,
        "                self._cache.discard(msgspec.structs.replace(plain, handle=handle))\n",
        "",
    ),
]


class Noticed(NamedTuple):
    """The first test that failed under a mutation, and what it said."""

    test: str
    how: str
    seconds: float


def tried(copy: Path, mutation: Mutation, store: str) -> Noticed | None:
    """How the mutation was noticed on this store; None if all tests passed."""
    place = copy / mutation.file
    text = place.read_text(encoding="utf-8")
    if mutation.old not in text:
        raise SystemExit(f"{mutation.file} has no {mutation.old!r} any more: bring the mutation up to date.")
    place.write_text(text.replace(mutation.old, mutation.new, 1), encoding="utf-8")
    begun = time.monotonic()
    try:
        done = run_tests(copy, mutation.contract, store)
    finally:
        place.write_text(text, encoding="utf-8")
    if done.returncode == 0:
        return None
    if done.returncode == 5:
        raise SystemExit(f"no test is called {mutation.contract}")
    return noticed(done.stdout, time.monotonic() - begun)


def run_tests(copy: Path, contract: str, store: str) -> subprocess.CompletedProcess[str]:
    """The tests of one contract on one store, and those that need none, up to the first that fails."""
    pattern = "test_b*.py" if contract.startswith("b") else "test_d*.py"
    (other,) = [kind for kind in STORES if kind != store]
    files = sorted(str(file.relative_to(copy)) for file in (copy / "tests/contracts").glob(pattern))
    # Only the two plug-ins that these tests need: loading the others takes longer than most of the tests.
    plug_ins = ["-p", "anyio", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    options = ["-x", "-vv", *plug_ins, "--timeout=60", "--timeout-method=thread"]
    settings = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files, "-k", f"{contract} and not {other}"],
        cwd=copy,
        env={**os.environ, **settings, "PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def noticed(output: str, seconds: float) -> Noticed:
    found = re.search(r"^(?:FAILED|ERROR) \S+::(\S+)(?: - (.*))?$", output, re.MULTILINE)
    if found is None:
        # A test that hangs is ended by its time limit, which takes the run with it: it is the last that began.
        begun = re.findall(r"^\S+::(\S+)", output, re.MULTILINE)
        last = without_store(begun[-1]) if begun else "before the first test"
        return Noticed(last, "hung", seconds)
    waited = re.search(r"not within \d+ s: [^\n'\"]*", output)
    how = waited[0] if waited else found[2] or ""
    if "ExceptionGroup" in how or not how:
        inner = re.search(
            r"^E?\s*(?:\||\+)?\s*((?:\w+\.)*\w*(?:Error|Failed|Away|Exception): .*)$", output, re.MULTILINE
        )
        how = inner[1] if inner else how
    return Noticed(without_store(found[1]), how.removeprefix("AssertionError: ").strip(), seconds)


def without_store(test: str) -> str:
    """The name of the test without the store that it ran on."""
    return re.sub(r"\[(?:sqlite|postgresql)\]$|(?<=\[)(?:sqlite|postgresql)-", "", test)


def cell(text: str, most: int) -> str:
    """Text for one cell of a Markdown table, as code."""
    line = " ".join(text.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return f"`{line}`".replace("|", "\\|") if line else ""


def key(mutation: Mutation) -> str:
    """The cells of a row that say what was changed."""
    if mutation.old == mutation.new:
        raise SystemExit(f"{mutation} changes nothing")
    removed, instead = cell(mutation.old, 90), cell(mutation.new, 70) or "nothing"
    return f"| {mutation.contract.upper()} | {Path(mutation.file).name} | {removed} | {instead} |"


def row(mutation: Mutation, found: dict[str, Noticed | None], before: str) -> str:
    """``before``: the row of an earlier run, for what was not tried in this one."""
    known = [part.strip() for part in before.removeprefix(key(mutation)).split(" | ")] if before else []
    first, how, second = known if len(known) == 3 else ("not run", "", "not run")
    second = second.removesuffix(" |")
    if STORES[0] in found:
        first, how = told(found[STORES[0]])
    if STORES[1] in found:
        second, said = told(found[STORES[1]])
        how = how or said
    return f"{key(mutation)} {first} | {how} | {'the same' if second == first else second} |"


def told(found: Noticed | None) -> tuple[str, str]:
    return (cell(found.test, 120), cell(found.how, 110)) if found else ("**survived**", "")


def rows_of(table: Path | None) -> dict[str, str]:
    """The rows of an earlier run."""
    lines = table.read_text(encoding="utf-8").splitlines() if table is not None and table.exists() else []
    return {key(each): line for each in MUTATIONS for line in lines if line.startswith(key(each))}


HEAD = """# What the tests of B and D notice

Each row removes or breaks one guarded line in a copy of the source and runs the tests of its contract up to the
first that fails, on SQLite and on PostgreSQL; "what it said" is SQLite's. Made by
`python -m tests.mutation_check --store both --table docs/mutations.md`; a run of a part (`--only`, `--file`,
`--store`) brings its own rows and columns up to date.

| | file | line | instead | test that failed on SQLite | what it said | on PostgreSQL |
|---|---|---|---|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a contract, e.g. b04")
    parser.add_argument("--file", default="", help="a part of a file's name, e.g. ledger")
    parser.add_argument("--store", default=STORES[0], choices=[*STORES, "both"])
    parser.add_argument(
        "--from", type=int, default=0, dest="first", help="leave out the mutations before this one"
    )
    parser.add_argument("--table", type=Path, help="write a Markdown table to this file")
    given = parser.parse_args()
    stores = STORES if given.store == "both" else (given.store,)
    chosen = [
        each
        for each in MUTATIONS[given.first :]
        if each.contract.startswith(given.only) and given.file in each.file
    ]
    rows = rows_of(given.table)
    with tempfile.TemporaryDirectory(prefix="everturn-mutation-") as folder:
        copy = copied(Path(folder))
        for mutation in sorted(chosen, key=lambda each: each.contract):
            begun = time.monotonic()
            found = {store: tried(copy, mutation, store) for store in stores}
            rows[key(mutation)] = row(mutation, found, rows.get(key(mutation), ""))
            print(f"{time.monotonic() - begun:4.0f} s {rows[key(mutation)]}", flush=True)
            if given.table is not None:
                given.table.write_text(table_of(rows), encoding="utf-8")
    print(counted(list(rows.values())))
    return 1 if any("**survived**" in each for each in rows.values()) else 0


def table_of(rows: dict[str, str]) -> str:
    """The whole table, contract by contract; what this run has not tried stays as it was."""
    order = [key(each) for each in sorted(MUTATIONS, key=lambda each: each.contract)]
    lines = [rows[each] for each in dict.fromkeys(order) if each in rows]
    return HEAD + "\n".join(lines) + f"\n\n{counted(lines)}\n"


def counted(lines: list[str]) -> str:
    survived, hung = (sum(word in line for line in lines) for word in ("**survived**", "| `hung` |"))
    return f"{len(lines)} mutations, {survived} survived, {hung} noticed only by a hang."


def copied(folder: Path) -> Path:
    """The folder with a copy of what the tests need, to be changed."""
    skip = shutil.ignore_patterns("__pycache__", "page", "node_modules")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", folder / "pyproject.toml")
    return folder


if __name__ == "__main__":
    sys.exit(main())
