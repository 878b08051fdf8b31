"""Models that run on this machine: ``pocket`` and ``coder``.

The first call downloads the weights (shown as progress), starts a server in a child process, and then uses it
like any other OpenAI-compatible server. If the child died, the next call starts it again.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import IO

import anyio
import anyio.abc
import anyio.to_thread
import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.errors import EverturnError
from everturn.domain.extras import install_command
from everturn.domain.json_types import JsonObject
from everturn.domain.model import Abilities, Chunk, Model, ModelRequest, ProgressChunk
from everturn.domain.model_errors import ModelDropped, ModelRefused, ModelTimeout
from everturn.domain.secrets import Secret
from everturn.models.openai_wire import OpenAIModel
from everturn.models.small_models import TextCalls, ToolBrief
from everturn.models.weights import CODER, POCKET, Shelf, Weights
from everturn.models.wire import Target

_CHILD = Path(__file__).with_name("llama_child.py")
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 3.0
_IDLE_S = 600
_PROGRESS_EVERY_S = 0.5  # how often a turn that waits for weights shows how far they are
_LOG_CHARS = 400
_OPENMP = "libgomp.so.1"
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "SYSTEMROOT", "TMPDIR")


class LocalSpec(msgspec.Struct, frozen=True):
    """A local model: its weights and how it is run."""

    name: str
    weights: Weights
    abilities: Abilities
    cache_mib: int
    extra: JsonObject
    calls_in_text: bool = False
    hidden_tools: frozenset[str] = frozenset()
    tool_briefs: dict[str, ToolBrief] = {}


POCKET_SPEC = LocalSpec(
    "pocket:smollm2-135m",
    POCKET,
    Abilities(tools=False, continues=True, context_tokens=4096, output_tokens=512, is_small=True),
    cache_mib=64,
    # The publisher's values for this model; at a higher temperature it rambles. With the repeat penalty alone
    # a long answer repeated itself (11 of 41 sentences); with the DRY penalty, none of 31.
    extra={
        "temperature": 0.2,
        "top_p": 0.9,
        "repeat_penalty": 1.1,
        "dry_multiplier": 0.8,
        "dry_base": 1.75,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": 512,
        "dry_sequence_breakers": ["\n"],
    },
)
CODER_SPEC = LocalSpec(
    "coder:qwen2.5-coder-1.5b",
    CODER,
    Abilities(continues=False, context_tokens=8192, output_tokens=1024, is_brief=True),
    cache_mib=256,
    extra={"temperature": 0.0},  # the likeliest call is the best it can do
    calls_in_text=True,
    # Each tool takes time to read, and of two ways the model takes the wrong one: asked to write and run a
    # file, it ran the code without writing it; asked what a file holds, it searched all files for its name.
    hidden_tools=frozenset(
        {
            *("apply_patch", "ask_user", "python", "search_files", "search_sessions", "todo", "web_search"),
            *("list_documents", "read_document", "search_documents"),
        }
    ),
    # Optional arguments are hidden: the model fills in every one, with values it takes for defaults.
    tool_briefs={
        "edit_file": ToolBrief("Change a file: new comes in the place of old.", ("path", "old", "new")),
        "list_files": ToolBrief("List the files of the workspace."),
        "memory": ToolBrief(
            "Only if the user says remember or forget: facts about the user.", ("action", "text")
        ),
        "read_file": ToolBrief("Read a file: to look up, count or understand what is in it.", ("path",)),
        "terminal": ToolBrief(
            "Run a shell command: run a program, find text in files (grep), add to the end of a file (>>), "
            "rename, move, copy or delete files, count, calculate.",
            ("command",),
        ),
        "web_fetch": ToolBrief("Read a web page that the user names.", ("url",)),
        "write_file": ToolBrief("Make a file that is not there yet.", ("path", "content")),
    },
)


class Fetches:
    """Downloads of weights, one per model however many turns wait for it.

    A download belongs to the task group and not to the turn that started it: stopping that turn must not
    discard what the next one needs.
    """

    def __init__(self, shelf: Shelf, tasks: anyio.abc.TaskGroup) -> None:
        self._shelf = shelf
        self._tasks = tasks
        self._running: dict[str, _Fetch] = {}

    def has(self, weights: Weights) -> bool:
        return self._shelf.has(weights)

    def path(self, weights: Weights) -> Path:
        return self._shelf.path(weights)

    def is_running(self, weights: Weights) -> bool:
        return weights.name in self._running

    async def progress(self, weights: Weights) -> AsyncGenerator[ProgressChunk, None]:
        """Start or join a download and yield its progress until it ends. Raises ModelTrouble."""
        if self.has(weights):
            return
        fetch = self._running.get(weights.name)
        if fetch is None:
            fetch = self._running[weights.name] = _Fetch(weights.size)
            self._tasks.start_soon(self._run, weights, fetch, name=f"fetch {weights.name}")
        label = f"Fetching {weights.title}"
        while not fetch.ended.is_set():
            yield ProgressChunk(label, fetch.done, fetch.total)
            with anyio.move_on_after(_PROGRESS_EVERY_S):
                await fetch.ended.wait()
        if fetch.error is not None:
            raise fetch.error
        yield ProgressChunk(label, fetch.total, fetch.total)

    async def _run(self, weights: Weights, fetch: _Fetch) -> None:
        try:
            await self._shelf.fetch(weights, fetch.report)
        except EverturnError as error:
            fetch.error = error
        except OSError as error:
            fetch.error = ModelRefused(
                f"Could not store the weights of {weights.name}: {error.strerror or error}.",
                hint="Check the data folder, then try again.",
            )
        finally:
            del self._running[weights.name]
            fetch.ended.set()


class _Fetch:
    def __init__(self, total: int) -> None:
        self.done = 0
        self.total = total
        self.error: EverturnError | None = None
        self.ended = anyio.Event()

    def report(self, done: int, total: int) -> None:
        self.done, self.total = done, total


class LlamaServer:
    """The child process that serves one file of weights."""

    def __init__(
        self,
        spec: LocalSpec,
        path: Path,
        environ: Mapping[str, str],
        *,
        make_key: Callable[[], str] = lambda: secrets.token_urlsafe(24),
        command: tuple[str, ...] = (sys.executable, "-P", str(_CHILD)),
    ) -> None:
        self._spec = spec
        self._path = path
        self._environ = {name: environ[name] for name in _KEPT_VARIABLES if name in environ}
        self._make_key = make_key
        self._command = command
        self._lock = anyio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._place: tuple[str, Secret] | None = None
        self.starts = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def place(self) -> tuple[str, Secret]:
        """The server's address and key; starts the server if it is not running. Raises ModelTrouble."""
        async with self._lock:
            if self.pid is None or self._place is None:
                await self.close()
                self._place = await self._start()
            return self._place

    async def close(self) -> None:
        """End the child by closing its input; kill it if it hangs."""
        process, self._process, self._place = self._process, None, None
        if process is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_end, process)

    async def _start(self) -> tuple[str, Secret]:
        self.starts += 1
        key = Secret(self._make_key())
        log_path = self._path.with_suffix(".log")
        self._process = await anyio.to_thread.run_sync(_spawn, self._command, self._environ, log_path)
        try:
            with anyio.fail_after(_START_TIMEOUT_S):
                line = await anyio.to_thread.run_sync(
                    _converse, self._process, self._settings(key), abandon_on_cancel=True
                )
        except TimeoutError:
            await self.close()
            raise ModelTimeout(f"{self._spec.name} did not start in {_START_TIMEOUT_S:g} seconds.") from None
        except BaseException:
            await self.close()
            raise
        said = msgspec.json.decode(line) if line.strip() else {}
        if "address" not in said:
            await self.close()
            raise _start_failure(self._spec.name, said.get("error", ""), log_path)
        return said["address"] + "/v1", key

    def _settings(self, key: Secret) -> JsonObject:
        return {
            "path": str(self._path),
            "key": key.reveal(),
            "context_tokens": self._spec.abilities.context_tokens,
            "cache_mib": self._spec.cache_mib,
            "idle_s": _IDLE_S,
            "threads": max(1, _cores() - 1),
        }


class LocalModel:
    """A local model. Downloading and loading are shown as progress before the first token."""

    def __init__(
        self,
        spec: LocalSpec,
        fetches: Fetches,
        server: LlamaServer,
        client: httpx2.AsyncClient,
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._fetches = fetches
        self._server = server
        self._client = client
        self._clock = clock

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def abilities(self) -> Abilities:
        return self._spec.abilities

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Chunk]]:
        async with aclosing(self._chunks(request)) as chunks:
            yield chunks

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        check_runtime(self.name)
        async with aclosing(self._fetches.progress(self._spec.weights)) as progress:
            async for news in progress:
                yield news
        if self._server.pid is None:
            yield ProgressChunk(f"Starting {self._spec.weights.title}")
        model = self._model(*await self._server.place())
        async with model.stream(request) as chunks:
            async for chunk in chunks:
                yield chunk

    def _model(self, base_url: str, key: Secret) -> Model:
        target = Target(
            self.name,
            self._spec.weights.name,
            base_url,
            abilities=self.abilities,
            key=key,
            extra=self._spec.extra | {"max_tokens": self.abilities.output_tokens},
            idle_timeout_s=600.0,  # a long prompt is read at a hundred tokens per second
            continues_by="last" if self.abilities.continues else "",
            keeps_alive=False,
        )
        model = OpenAIModel(target, self._client, self._clock)
        if not self._spec.calls_in_text:
            return model
        return TextCalls(model, self._spec.hidden_tools, self._spec.tool_briefs, has_grammar=True)


def check_runtime(name: str, load: Callable[[str], object] = ctypes.CDLL) -> None:
    """Raises ModelRefused if what runs local models is not installed. ``load``: opens a shared library."""
    found = importlib.util.find_spec("xllamacpp")
    if found is None:
        raise ModelRefused(
            f"{name} runs on this machine, and the package for that is not installed.",
            hint=f"Set a key, start a server such as Ollama, or run: {install_command('local')}",
        )
    # Small systems have no OpenMP, and some builds of the package bring their own.
    if sys.platform != "linux" or any(Path(found.origin or "").parents[1].glob("xllamacpp*.libs/libgomp*")):
        return
    try:
        load(_OPENMP)
    except OSError as error:
        raise ModelRefused(
            f"{name} runs on this machine, and a library for that is not installed: {_OPENMP}.",
            hint="Set a key, start a server such as Ollama, or install libgomp. "
            "On Debian and Ubuntu run: sudo apt-get install libgomp1",
        ) from error


def _spawn(command: tuple[str, ...], environ: dict[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    with log_path.open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - our own program, by its path
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environ
        )


def _converse(process: subprocess.Popen[bytes], settings: JsonObject) -> bytes:
    """Send the child its settings; return its one-line answer, empty if it died."""
    stdin, stdout = _pipes(process)
    try:
        stdin.write(msgspec.json.encode(settings) + b"\n")
        stdin.flush()
    except BrokenPipeError:
        return b""
    return stdout.readline()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the child was started without pipes")
    return process.stdin, process.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    stdin, stdout = _pipes(process)
    with suppress(BrokenPipeError):  # it is gone already, with something unread in the pipe
        stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    stdout.close()


def _start_failure(name: str, said: str, log_path: Path) -> ModelDropped:
    log = log_path.read_text("utf-8", "replace").strip()[-_LOG_CHARS:]
    detail = said or (log.splitlines()[-1] if log else "it ended without a word")
    return ModelDropped(
        f"{name} could not be started: {detail}",
        hint=f"What it wrote is in {log_path.name} beside its weights.",
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
