"""``python -m tests.soak --minutes 30 [--people 20] [--life 45] [--seed 7] [--database-url postgresql://…]``"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

from tests.soak.soaking import Plan, Soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--life", type=float, default=45.0, help="seconds until the server is ended")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--database-url", default="")
    parser.add_argument("--picture", type=Path, default=Path("build/soak.svg"))
    given = parser.parse_args()
    plan = Plan(
        seconds=given.minutes * 60,
        people=given.people,
        life_s=given.life,
        seed=given.seed,
        database_url=given.database_url,
    )
    home = Path(tempfile.mkdtemp(prefix="everturn-soak-"))
    soak = Soak(home, plan, say=lambda line: print(f"\r{line}", end="", flush=True))
    print(f"Soaking in {home} with seed {plan.seed}.")
    try:
        anyio.run(soak.run)
    finally:
        if soak.watch.samples:
            title = f"{given.people} people, a server that is killed or stopped every {given.life:.0f} s"
            given.picture.parent.mkdir(parents=True, exist_ok=True)
            given.picture.write_text(soak.watch.drawn(title), encoding="utf-8")
    sys.exit(_verdict(soak, home, given.database_url, given.picture))


def _verdict(soak: Soak, home: Path, database_url: str, picture: Path) -> int:
    tally, grown = soak.tally, soak.watch.growth()
    print(
        f"\n{tally.turns} turns and {tally.events} events over {len(soak.watch.ends)} ends of the server and "
        f"{tally.reconnections} reconnections: nothing lost, nothing twice.\n"
        f"{tally.resumed} turns resumed, {tally.cancelled} cancelled, {tally.effects} commands took effect once, "
        f"{tally.in_doubt} in doubt and asked about, {tally.deleted} sessions deleted. Drawn: {picture}"
    )
    for line in grown:
        print(f"Grew: {line}.")
    environ = os.environ | ({"EVERTURN_DATABASE_URL": database_url} if database_url else {})
    command = [sys.executable, "-m", "everturn", "doctor", "--home", str(home)]
    doctor = subprocess.run(command, env=environ, check=False)
    return 1 if grown or doctor.returncode else 0


if __name__ == "__main__":
    main()
