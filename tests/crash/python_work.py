"""A process whose interpreter of Python is busy between two calls of a turn. It prints its id, and is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from tests.unit.tools.kit import open_kit

BUSY = """
import threading
def work():
    while True: pass
threading.Thread(target=work, daemon=True).start()
"""


async def main(folder: str) -> None:
    async with open_kit(Path(folder)) as kit:
        await kit.run("python", code=BUSY)
        (interpreter,) = kit.toolbox._interpreters._by_turn.values()
        sys.stdout.write(f"{interpreter._child.process.pid}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
