"""Workers as processes, each with a data folder of its own, as if on machines of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import httpx2

from everturn.lab.service.soak import server_environment
from everturn.testing.ports import free_port

_READY_S = 90.0
_EXIT_S = 90.0
_LOOK_S = 0.1


class Worker:
    """``tree``: the source that it runs, if not this one. ``settings``: its config.toml."""

    def __init__(self, name: str, folder: Path, environ: dict[str, str], settings: str) -> None:
        self.name = name
        self.home = folder / name
        self.port = free_port()
        self.tree: Path | None = None
        self._log = folder / f"{name}.log"
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self.home.mkdir(parents=True, mode=0o700)
        (self.home / "config.toml").write_text(settings)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Return when it is ready."""
        environ = server_environment(self.home, "") | self._environ
        if self.tree is not None:
            environ["PYTHONPATH"] = str(self.tree / "src")
        command = [sys.executable, "-m", "everturn", "serve", "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home
            )
        with anyio.fail_after(_READY_S):
            while not await self.is_ready():
                if self._process.poll() is not None:
                    raise RuntimeError(f"{self.name} ended: {self._log.read_text()[-2000:]}")
                await anyio.sleep(_LOOK_S)

    async def is_ready(self) -> bool:
        return (await self.ask("/readyz")) is not None

    async def ask(self, path: str) -> httpx2.Response | None:
        """None if it does not answer with 200."""
        async with httpx2.AsyncClient(base_url=self.url, timeout=5.0, trust_env=False) as http:
            try:
                answer = await http.get(path)
            except httpx2.TransportError:
                return None
            return answer if answer.status_code == 200 else None

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._running.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def drain(self) -> float:
        """Tell it to stop; return how many seconds that took."""
        began = time.monotonic()
        self._signal(signal.SIGTERM)
        with anyio.fail_after(_EXIT_S):
            while self._running.poll() is None:
                await anyio.sleep(_LOOK_S)
        if self._running.returncode:
            raise RuntimeError(f"{self.name} ended with {self._running.returncode}: {self._log}")
        return time.monotonic() - began

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    @property
    def cpu_s(self) -> float:
        """Processor time that this process has used."""
        fields = Path(f"/proc/{self._running.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    def _signal(self, number: signal.Signals) -> None:
        self._running.send_signal(number)
