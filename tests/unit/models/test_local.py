from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.messages import Message, Result, Role
from everturn.domain.model import ModelRequest, ProgressChunk, ToolSchema
from everturn.domain.model_errors import ContextTooLong, ModelDropped, ModelRefused
from everturn.models import local
from everturn.models.local import CODER_SPEC, POCKET_SPEC, Fetches, LlamaServer, LocalModel, LocalSpec
from everturn.models.weights import OnProgress, PipDownload, Shelf, weights_folder
from tests.unit.models.samples import asks, collect, finish_of, message, text_of, user
from tests.unit.models.test_weights import Registry, weights

pytestmark = pytest.mark.anyio

# Keeps the child's protocol: one line in, one line out, ends with its input. Says what it was told.
FAKE_CHILD = """
import http.server, json, os, sys, threading
told = json.loads(sys.stdin.readline())
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        good = self.headers["authorization"] == "Bearer " + told["key"]
        self.rfile.read(int(self.headers["content-length"]))
        text = "served " + os.path.basename(told["path"]) if good else "bad key"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for choice in ({"delta": {"content": text}}, {"delta": {}, "finish_reason": "stop"}):
            self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\\n\\n")
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps({"address": "http://127.0.0.1:%d" % server.server_port}), flush=True)
sys.stdin.read()
os._exit(0)
"""


def fake_server(tmp_path: Path, source: str = FAKE_CHILD) -> LlamaServer:
    spec = LocalSpec("tiny:x", weights(), POCKET_SPEC.abilities, 1, {})
    return LlamaServer(spec, tmp_path / "tiny.gguf", os.environ, command=(sys.executable, "-c", source))


@asynccontextmanager
async def tiny_model(
    tmp_path: Path, client: httpx2.AsyncClient, registry: Registry, server: LlamaServer
) -> AsyncIterator[LocalModel]:
    spec = LocalSpec("tiny:x", weights(), POCKET_SPEC.abilities, 1, {})
    async with anyio.create_task_group() as tasks:
        fetches = Fetches(Shelf(tmp_path, registry), tasks)
        yield LocalModel(spec, fetches, server, client, SystemClock())
        await server.close()
        tasks.cancel_scope.cancel()


async def test_the_first_call_fetches_starts_and_answers(tmp_path: Path, client: httpx2.AsyncClient) -> None:
    registry, server = Registry(), fake_server(tmp_path)
    async with tiny_model(tmp_path, client, registry, server) as model:
        assert (registry.asked, server.starts) == ([], 0)  # nothing happens before
        chunks = await collect(model, asks())
        progress = [chunk for chunk in chunks if isinstance(chunk, ProgressChunk)]
        assert progress[0].total == weights().size
        assert progress[-2].done == weights().size
        assert progress[-1].label.startswith("Starting")
        assert text_of(chunks) == "served tiny.gguf"
        again = await collect(model, asks())
        assert not any(isinstance(chunk, ProgressChunk) for chunk in again)
        assert server.starts == 1


def kill(pid: int | None) -> None:
    """End a process and wait for its end."""
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_a_child_that_died_is_started_again(tmp_path: Path, client: httpx2.AsyncClient) -> None:
    server = fake_server(tmp_path)
    async with tiny_model(tmp_path, client, Registry(), server) as model:
        await collect(model, asks())
        kill(server.pid)
        assert text_of(await collect(model, asks())) == "served tiny.gguf"
        assert server.starts == 2


async def test_many_first_calls_fetch_once_and_start_once(tmp_path: Path, client: httpx2.AsyncClient) -> None:
    registry, server = Registry(), fake_server(tmp_path)
    texts: list[str] = []
    async with tiny_model(tmp_path, client, registry, server) as model:

        async def call() -> None:
            texts.append(text_of(await collect(model, asks())))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)
    assert texts == ["served tiny.gguf"] * 5
    assert len(registry.asked) == 3
    assert server.starts == 1


async def test_stopping_the_turn_that_began_a_fetch_does_not_stop_the_fetch(
    tmp_path: Path, client: httpx2.AsyncClient
) -> None:
    registry = Registry()
    registry.holds = anyio.Event()
    async with tiny_model(tmp_path, client, registry, fake_server(tmp_path)) as model:
        async with model.stream(asks()) as chunks:
            async for chunk in chunks:
                assert isinstance(chunk, ProgressChunk)
                break
        registry.holds.set()
        assert text_of(await collect(model, asks())) == "served tiny.gguf"
        assert len(registry.asked) == 3


async def test_a_failed_download_is_reported_and_retried_by_the_next_call(
    tmp_path: Path, client: httpx2.AsyncClient
) -> None:
    registry = Registry()
    registry.fails_at = "tiny-part1==1.0"
    async with tiny_model(tmp_path, client, registry, fake_server(tmp_path)) as model:
        with pytest.raises(ModelDropped, match="network"):
            await collect(model, asks())
        registry.fails_at = None
        assert text_of(await collect(model, asks())) == "served tiny.gguf"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            'import sys; sys.stdin.readline(); print(\'{"error": "RuntimeError: no such file"}\')',
            "no such file",
        ),
        ("import sys; sys.exit('out of memory')", "out of memory"),
        ("pass", "without a word"),
    ],
)
async def test_a_child_that_does_not_start_says_why(
    tmp_path: Path, client: httpx2.AsyncClient, source: str, said: str
) -> None:
    async with tiny_model(tmp_path, client, Registry(), fake_server(tmp_path, source)) as model:
        with pytest.raises(ModelDropped, match=said):
            await collect(model, asks())


async def test_a_cancelled_start_leaves_no_child(tmp_path: Path) -> None:
    server = fake_server(
        tmp_path, f"open({str(tmp_path / 'up')!r}, 'w').close(); import sys; sys.stdin.read()"
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.place)
        with anyio.fail_after(60):
            # The child may be up before the thread that started it has told its process id.
            while (pid := server.pid) is None or not (tmp_path / "up").exists():
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # type: ignore[arg-type]  # the child is running, so it has a pid


async def test_the_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """The real child program, without weights: it must not outlive a parent that could say nothing."""
    parent = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-P", {str(local._CHILD)!r}], stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(600)
"""
    async with await anyio.open_process([sys.executable, "-c", parent], stderr=None) as process:
        assert process.stdout is not None
        pid = int(await process.stdout.receive())
        process.kill()
        await process.wait()
    with anyio.fail_after(60):
        while is_alive(pid):
            await anyio.lowlevel.checkpoint()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_without_the_package_the_error_says_what_to_do(
    tmp_path: Path, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    registry = Registry()
    async with tiny_model(tmp_path, client, registry, fake_server(tmp_path)) as model:
        with pytest.raises(ModelRefused) as caught:
            await collect(model, asks())
    assert "everturn[local]" in caught.value.hint
    assert registry.asked == []  # nothing is fetched that could not be run


# --- the real models ---------------------------------------------------------------------------------


def folder_of(spec: LocalSpec) -> Path:
    pytest.importorskip("xllamacpp")
    home = Path(os.environ.get("EVERTURN_HOME", "~/.everturn")).expanduser()
    folder = weights_folder(home, os.environ)
    if not Shelf(folder, PipDownload({})).has(spec.weights):
        pytest.skip(f"the weights of {spec.name} are not in {folder}")
    return folder


async def no_download(requirement: str, folder: Path, on_progress: OnProgress) -> Path:
    raise AssertionError("the weights are there")


@asynccontextmanager
async def real_model(
    spec: LocalSpec, client: httpx2.AsyncClient
) -> AsyncIterator[tuple[LocalModel, LlamaServer]]:
    folder = folder_of(spec)
    async with anyio.create_task_group() as tasks:
        server = LlamaServer(spec, folder / spec.weights.file, os.environ)
        fetches = Fetches(Shelf(folder, no_download), tasks)
        try:
            yield LocalModel(spec, fetches, server, client, SystemClock()), server
        finally:
            await server.close()
        tasks.cancel_scope.cancel()


@pytest.mark.local_model
async def test_the_pocket_model_talks_continues_and_survives_its_child(client: httpx2.AsyncClient) -> None:
    async with real_model(POCKET_SPEC, client) as (model, server):
        france = ModelRequest("", (user("What is the capital of France?"),), temperature=0.0)
        chunks = await collect(model, france)
        assert "Paris" in text_of(chunks)
        usage = finish_of(chunks).usage
        assert usage.input_tokens
        assert usage.output_tokens
        goes_on = ModelRequest("", france.messages, prefix="The capital of France is", temperature=0.0)
        assert text_of(await collect(model, goes_on)).startswith(" Paris")
        with pytest.raises(ContextTooLong):
            await collect(model, ModelRequest("", (user("word " * 6000),)))
        kill(server.pid)
        assert "Paris" in text_of(await collect(model, france))
        assert server.starts == 2
        pid = server.pid
    assert pid is not None
    assert not is_alive(pid)


@pytest.mark.local_model
@pytest.mark.timeout(400)
async def test_the_coder_model_calls_a_tool_and_uses_its_result(client: httpx2.AsyncClient) -> None:
    tool = ToolSchema(
        "terminal",
        "Run a shell command in the workspace and return its output.",
        {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    )
    async with real_model(CODER_SPEC, client) as (model, _):
        asked: tuple[Message, ...] = (user("How many lines does the file notes.txt have? Use the terminal."),)
        finish = finish_of(await collect(model, ModelRequest("Be brief.", asked, (tool,), temperature=0.0)))
        assert finish.reason == "calls"
        assert finish.calls[0].name == "terminal"
        assert "notes.txt" in finish.calls[0].arguments
        after = (
            *asked,
            message(Role.ASSISTANT, *finish.calls),
            message(Role.TOOL, Result(finish.calls[0].id, "terminal", "12 notes.txt")),
        )
        chunks = await collect(model, ModelRequest("Be brief.", after, (tool,), temperature=0.0))
        assert "12" in text_of(chunks)
        assert finish_of(chunks).calls == ()


def test_a_system_without_openmp_is_told_what_to_install() -> None:
    """Minimal systems have none; without this the first message failed with the loader's own words."""

    def load(name: str) -> object:
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    with pytest.raises(ModelRefused) as refused:
        local.check_runtime("pocket:smollm2-135m", load)
    assert "libgomp.so.1" in refused.value.message
    assert refused.value.hint is not None
    assert refused.value.hint.endswith("run: sudo apt-get install libgomp1")
