"""A move that is killed when it has reported so many steps: SOURCE TARGET STEPS."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from everturn.move import move_store


def main(source: str, target: str, steps: str) -> None:
    left = int(steps)

    def report(line: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(move_store(source, target, report))


if __name__ == "__main__":
    main(*sys.argv[1:])
