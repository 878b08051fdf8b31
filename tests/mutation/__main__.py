"""``scripts/mutate``: run each mutant against the tests of its contract, and write docs/mutations.md.

Works on a copy of the source. A mutant that no test notices has survived: the run ends with 1. The test that
noticed a mutant the last time is tried first, so a whole run takes a few seconds for each.
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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.mutation.guards import Mutant, mutants
from tests.postgres import PORT, postgres_server

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "everturn"
TABLE = ROOT / "docs" / "mutations.md"
STORES = ("sqlite", "postgresql")
SUITES = ("contracts", "race", "crash", "unit", "security")
SURVIVED = "**survived**"
TIMEOUT_S = 60
# The test that noticed a mutant the last time gets a quarter: alone it takes a second or two, and a mutant that
# makes it wait would make it wait for the whole limit.
FIRST_PART = 4

HEAD = """# What the tests of the contracts notice

Written by `scripts/mutate`. Each row breaks one place in a copy of the source that a `guard` comment marks, and runs
the tests of the contract that the comment names, up to the first that fails. "nothing" in the third column: the
code is left out. `scripts/mutate --only b04` tries one contract, `--file ledger` one file, `--store postgresql` the
other store; a run of a part brings its own rows up to date. On a busy machine give the tests more time
(`--limit 300`), or one that only waits counts as one that noticed.

| | place | broken | instead | noticed by |
|---|---|---|---|---|
"""


class Bench:
    """A copy of the repository whose source can be broken."""

    def __init__(self, folder: Path, store: str, limit_s: int, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._store = store
        self._limit_s = limit_s
        self._settings = settings  # of the environment
        skip = shutil.ignore_patterns("__pycache__", "page", "node_modules")
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, folder / name, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", folder / "pyproject.toml")

    def notice(self, mutant: Mutant, first: str) -> str:
        """The first test that fails with this mutant, or "" if none does. ``first`` is tried before others."""
        place = self._folder / "src" / "everturn" / mutant.file
        whole = place.read_text(encoding="utf-8")
        place.write_text(mutant.text, encoding="utf-8")
        try:
            found = self._run([first], "") if first else ""
            return found or self._run(self._files(mutant.contract), mutant.contract)
        finally:
            place.write_text(whole, encoding="utf-8")

    def _files(self, contract: str) -> list[str]:
        """Test files with a test of this contract."""
        name = re.compile(rf"def test_(?:[a-g]\d\d_)*{contract}_")
        files = (
            file for suite in SUITES for file in sorted((self._folder / "tests" / suite).rglob("test_*.py"))
        )
        found = [
            str(file.relative_to(self._folder)) for file in files if name.search(file.read_text("utf-8"))
        ]
        if not found:
            raise SystemExit(f"no test is called test_{contract}_…")
        return found

    def _run(self, tests: Sequence[str], contract: str) -> str:
        # Only the two plug-ins that these tests need: loading the others takes longer than most of the tests.
        plug_ins = ["-p", "anyio", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
        limit_s = self._limit_s if contract else self._limit_s // FIRST_PART
        options = ["-x", "-vv", *plug_ins, f"--timeout={limit_s}", "--timeout-method=thread"]
        if contract:
            (other,) = [kind for kind in STORES if kind != self._store]
            options += ["-k", f"{contract} and not {other}"]
        settings = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "300"}
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self._folder,
            env={**environ, **settings, **self._settings, "PYTHONPATH": str(self._folder / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 or (not contract and done.returncode in (4, 5)):
            return ""  # passed, or the test that is tried first has another name by now
        if done.returncode == 5:
            raise SystemExit(f"no test of {contract} runs on {self._store}")
        return _first_failure(done.stdout)


def _first_failure(output: str) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (\S+::\S+|\S+\.py)", output, re.MULTILINE)
    if found is not None:
        return found[1]
    # A test that hangs is ended by its time limit, and the run with it: it is the last that began.
    begun = re.findall(r"^(\S+::\S+)", output, re.MULTILINE)
    # The row says so, because on a busy machine the limit can end a test that would have passed.
    return f"{begun[-1]} (time limit)" if begun else "before the first test"


def store_of(mutant: Mutant, asked: str) -> str:
    """The store that a mutant is tried on: its own, if it belongs to one."""
    return mutant.store or next((kind for kind in STORES if kind.removesuffix("ql") in mutant.file), asked)


def row(mutant: Mutant, noticed: str) -> str:
    instead = _cell(mutant.after, 20) if mutant.after not in ("", "pass") else "nothing"
    test = _cell(noticed, 200) if noticed else SURVIVED
    return f"| {_key(mutant)} {instead} | {test} |"


def _key(mutant: Mutant) -> str:
    return f"{mutant.contract.upper()} | `{mutant.file}` {_cell(mutant.place, 80)} | {_cell(mutant.before, 90)} |"


def _cell(text: str, most: int) -> str:
    """Text for one cell of a Markdown table, as code."""
    line = " ".join(text.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return f"`{line}`".replace("|", "\\|") if line else ""


def rows_of(table: Path, every: Sequence[Mutant]) -> dict[str, str]:
    """The rows of the last run, of mutants that are still there."""
    lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    return {each.key: line for each in every for line in lines if line.startswith(f"| {_key(each)}")}


def noticed_by(line: str, store: str) -> str:
    """The test that a row of the table names, as it is called on this store."""
    found = re.search(r"`([^`]+)` \|$", line)
    return re.sub(rf"\[(?:{'|'.join(STORES)})", f"[{store}", found[1]) if found else ""


def table_of(every: Sequence[Mutant], rows: dict[str, str]) -> str:
    lines = [rows[each.key] for each in every if each.key in rows]
    survived = sum(SURVIVED in line for line in lines)
    count = f"{len(every)} marked places, {len(lines)} tried, {survived} survived."
    return HEAD + "\n".join(lines) + f"\n\n{count}\n"


def sample(every: Sequence[Mutant], count: int) -> list[Mutant]:
    """So many mutants, spread evenly: the same for the same source."""
    step = max(1, len(every) // count)
    return list(every[::step][:count])


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("--only", default="", help="a contract or the start of one, e.g. b04 or b")
    parser.add_argument("--file", default="", help="a part of a file's name, e.g. ledger")
    parser.add_argument("--store", default=STORES[0], choices=STORES)
    parser.add_argument(
        "--limit", type=int, default=TIMEOUT_S, help="seconds for a test; more on a busy machine"
    )
    parser.add_argument("--sample", type=int, help="try so many, and leave the table alone")
    given = parser.parse_args()
    every = sorted(mutants(SOURCE), key=lambda each: (each.contract, each.file, each.line))
    chosen = [each for each in every if each.contract.startswith(given.only) and given.file in each.file]
    rows = rows_of(TABLE, every)
    if given.sample:
        chosen = sample(chosen, given.sample)
    survived = 0
    for store in STORES:
        survived += _try(
            [each for each in chosen if store_of(each, given.store) == store],
            store,
            every,
            rows,
            limit_s=given.limit,
            is_written=not given.sample,
        )
    print(f"{len(chosen)} mutants, {survived} survived.")
    return 1 if survived else 0


def _try(
    chosen: Sequence[Mutant],
    store: str,
    every: Sequence[Mutant],
    rows: dict[str, str],
    *,
    limit_s: int,
    is_written: bool,
) -> int:
    survived = 0
    with tempfile.TemporaryDirectory(prefix="everturn-mutation-") as folder, ExitStack() as stack:
        settings = {}
        if chosen and store == "postgresql":
            settings[PORT] = str(stack.enter_context(postgres_server()).port)
        bench = Bench(Path(folder), store, limit_s, settings)
        for mutant in chosen:
            begun = time.monotonic()
            noticed = bench.notice(mutant, noticed_by(rows.get(mutant.key, ""), store))
            survived += not noticed
            rows[mutant.key] = row(mutant, noticed)
            print(f"{time.monotonic() - begun:4.0f} s {rows[mutant.key]}", flush=True)
            if is_written:
                TABLE.write_text(table_of(every, rows), encoding="utf-8")
    return survived


if __name__ == "__main__":
    sys.exit(main())
