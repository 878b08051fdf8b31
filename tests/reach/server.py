"""``everturn serve`` again and again, each time in a new process: ``python -m tests.reach.server PORT``.

Prints the id of each process. They are forks of one that has loaded everything: the platforms' libraries take
seconds to load.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

from everturn.cli.main import main as run_command
from everturn.testing.fork_server import MODULES

_PLATFORMS = ("telegram", "slack", "discord", "mail", "webhook")


def main(port: str) -> None:
    for name in (*MODULES, *(f"everturn.gateway.{platform}" for platform in _PLATFORMS)):
        importlib.import_module(name)
    while True:
        child = os.fork()
        if child == 0:
            run_command(["serve", "--port", port])  # until it is killed
            os._exit(1)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit("the server ended by itself")


if __name__ == "__main__":
    main(*sys.argv[1:])
