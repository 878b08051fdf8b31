"""Installs Everturn as a user does, with each Python that is named: ``installed.py python3.11 python3.14``.

The wheel is built once. For each Python it is installed with plain pip, in a folder with a space in its name;
the server is started, asked for its page and stopped. All tests: ``make test PYTHON=python3.14``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STARTS_WITHIN_S = 60.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="everturn ") as name:
        folder = Path(name)
        wheel = build(sys.argv[1] if len(sys.argv) > 1 else sys.executable, folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        for python in sys.argv[1:] or [sys.executable]:
            try_with(python, wheel, folder / f"with {Path(python).name}")


def build(python: str, folder: Path) -> Path:
    call(python, "-m", "venv", str(folder / "build"))
    call(str(folder / "build" / "bin" / "pip"), "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_with(python: str, wheel: Path, folder: Path) -> None:
    call(python, "-m", "venv", str(folder))
    call(str(folder / "bin" / "pip"), "install", "--quiet", str(wheel))
    everturn = str(folder / "bin" / "everturn")
    environ = {"HOME": str(folder / "home"), "PATH": os.defpath}
    print(call(everturn, "version", environ=environ), end="", flush=True)
    address = f"http://127.0.0.1:{free_port()}"
    with serving([everturn, "serve", "--port", address.rpartition(":")[2]], environ):
        wait_for(f"{address}/readyz")
        if b"<script" not in read(f"{address}/"):
            sys.exit(f"{python}: the page is not in the wheel.")
    print(f"serves, and stops when it is told to: {python}", flush=True)


def call(*words: str, environ: dict[str, str] | None = None) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environ).stdout


@contextlib.contextmanager
def serving(words: list[str], environ: dict[str, str]):
    server = subprocess.Popen(words, env=environ)
    try:
        yield
    finally:
        server.terminate()
        code = server.wait(60)
    if code != 0:
        sys.exit(f"The server ended with {code}.")


def wait_for(address: str) -> None:
    until = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            read(address)
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def read(address: str) -> bytes:
    # Not through a proxy: it is this machine.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=10) as answer:
        return bytes(answer.read())


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
