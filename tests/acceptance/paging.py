"""The page in a real browser, the real server in a process of its own, and a model that does as told.

The server can be killed and started again on the same data folder and port, as its owner would see it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.streams.buffered
import httpx2
from anyio.streams.text import TextReceiveStream
from playwright.async_api import Browser, BrowserContext, Page, Playwright, async_playwright, expect

from everturn.testing.forks import Fork, start_command
from everturn.testing.ports import free_port

# Campaigns that take long run in full with EVERTURN_LONG=1, and short in an ordinary run.
IS_LONG = os.environ.get("EVERTURN_LONG") == "1"
PATIENCE_S = 60.0
# Five seconds, which it would be, are nothing to a browser on a busy machine.
expect.set_options(timeout=PATIENCE_S * 1000)
PAGE = Path(__file__).parents[2] / "src/everturn/web/page/index.html"
CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The last such flag counts, so Playwright's own list is repeated. The last two are the suggestions under the
    # address bar: pages of the browser itself in each window, which take as long as the page under test.
    "--disable-features=AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,"
    "AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,"
    "PreconnectToSearch,WebUIOmniboxPopup,WebUIOmniboxAimPopup",
)
_PORT = anyio.abc.SocketAttribute.local_port


@dataclass
class Tool:
    """A tool call."""

    name: str
    arguments: dict[str, Any]


@dataclass
class Think:
    text: str


@dataclass
class Gate:
    """The model is silent here until the test opens the gate."""

    opened: anyio.Event = field(default_factory=anyio.Event)
    reached: anyio.Event = field(default_factory=anyio.Event)


class Hang:
    """Nothing more comes, ever."""


Step = str | Tool | Think | Gate | Hang


class Provider:
    """Speaks the OpenAI wire. The answer follows from the user's last words, not from the order of calls."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[dict[str, Any]] = []
        self.models = ["test-model"]
        self.refusals: dict[str, tuple[int, dict[str, Any]]] = {}  # by model
        self._answers: dict[str, list[Sequence[Step]]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def on(self, words: str, *answers: Sequence[Step]) -> None:
        """When the user's last message contains these words: one answer for each step of the turn."""
        self._answers[words] = list(answers)

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        reader = anyio.streams.buffered.BufferedByteReceiveStream(stream)
        try:
            async with stream:
                await self._one(reader, stream)
        except (
            anyio.BrokenResourceError,
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.ClosedResourceError,
        ):
            return  # the server was killed, which is what some tests are about

    async def _one(self, reader: Any, stream: anyio.abc.SocketStream) -> None:
        head = (await reader.receive_until(b"\r\n\r\n", 65536)).decode().split("\r\n")
        length = next(
            (int(line.split(":")[1]) for line in head if line.lower().startswith("content-length")), 0
        )
        body = await reader.receive_exactly(length) if length else b""
        if not head[0].startswith("POST"):
            listed = [{"id": name, "object": "model"} for name in self.models]
            await self._whole(stream, 200, {"object": "list", "data": listed})
            return
        request = json.loads(body)
        self.asked.append(request)
        if request["model"] in self.refusals:
            await self._whole(stream, *self.refusals[request["model"]])
            return
        await stream.send(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        await self._play(self._answer(request["messages"]), stream)

    async def _whole(self, stream: anyio.abc.SocketStream, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        start = (
            f"HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        await stream.send(start.encode() + body)

    def _answer(self, messages: list[dict[str, Any]]) -> Sequence[Step]:
        if "Write a title" in str(messages[0].get("content")):
            return ["A short title"]
        last = max(index for index, message in enumerate(messages) if message["role"] == "user")
        said = str(messages[last]["content"])
        step = sum(1 for message in messages[last + 1 :] if message["role"] == "assistant")
        for words, answers in self._answers.items():
            if words in said:
                return answers[min(step, len(answers) - 1)]
        return [f"You said: {said}"]

    async def _play(self, steps: Sequence[Step], stream: anyio.abc.SocketStream) -> None:
        calls = 0
        for step in steps:
            if isinstance(step, Gate):
                step.reached.set()
                await step.opened.wait()
            elif isinstance(step, Hang):
                await anyio.sleep_forever()
            elif isinstance(step, Think):
                await self._delta(stream, reasoning_content=step.text)
            elif isinstance(step, Tool):
                function = {"name": step.name, "arguments": json.dumps(step.arguments)}
                call = {"index": calls, "id": f"call_{calls}", "type": "function", "function": function}
                calls += 1
                await self._delta(stream, tool_calls=[call])
            else:
                for start in range(0, len(step), 12):
                    await self._delta(stream, content=step[start : start + 12])
        await self._delta(stream, finish="tool_calls" if calls else "stop")
        usage = {
            "prompt_tokens": 1200,
            "completion_tokens": 80,
            "prompt_tokens_details": {"cached_tokens": 1100},
        }
        await self._send(stream, {"id": "c", "choices": [], "usage": usage})
        await self._raw(stream, b"data: [DONE]\n\n")
        await stream.send(b"0\r\n\r\n")

    async def _delta(self, stream: anyio.abc.SocketStream, finish: str | None = None, **delta: Any) -> None:
        await self._send(
            stream, {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        )

    async def _send(self, stream: anyio.abc.SocketStream, value: Any) -> None:
        await self._raw(stream, b"data: " + json.dumps(value).encode() + b"\n\n")

    async def _raw(self, stream: anyio.abc.SocketStream, data: bytes) -> None:
        await stream.send(b"%x\r\n%s\r\n" % (len(data), data))


class House:
    """A server process that can be killed and comes back, and the browser that looks at it."""

    browser: Browser

    def __init__(self, home: Path, provider: Provider, group: anyio.abc.TaskGroup) -> None:
        self.home = home
        self.provider = provider
        self.port = free_port()
        self.extra: dict[str, str] = {}
        self._group = group
        self._process: Fork | None = None
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EVERTURN", "OPENAI", "ANTHROPIC"))
        }
        environ = kept | {
            "EVERTURN_HOME": str(self.home),
            "OPENAI_BASE_URL": self.provider.url,
            "OPENAI_API_KEY": "sk-test-000000000000",
            "EVERTURN_MODEL": "openai:test-model",
            "PYTHONUNBUFFERED": "1",
        }
        self._process, output = start_command("serve", "--port", str(self.port), environ=environ | self.extra)
        out = TextReceiveStream(output)
        said = ""
        with anyio.fail_after(PATIENCE_S):
            while "is ready" not in said:
                said += await out.receive()
        self._group.start_soon(_drain, out, name="server output")

    async def kill(self) -> None:
        """As a power cut would: no goodbye."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._end()

    async def close(self) -> None:
        """At the end of a test. A polite stop would take several times as long."""
        if self._process is not None:
            await self.kill()

    async def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with anyio.move_on_after(15, shield=True):
                await self._process.wait_async()
            await self._end()

    async def _end(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await self._process.wait_async()
        self._process = None

    async def context(self, **more: Any) -> BrowserContext:
        context = await self.browser.new_context(viewport={"width": 1280, "height": 860}, **more)
        context.set_default_timeout(PATIENCE_S * 1000)
        context.on("page", self._watch)
        return context

    async def open(self, path: str = "", context: BrowserContext | None = None, **more: Any) -> Page:
        context = context or await self.context(**more)
        page = await context.new_page()
        await page.goto(self.url + path)
        await page.wait_for_selector("[data-composer]")
        return page

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text) if _is_bad(message) else None)
        page.on("request", lambda request: self._requested(request.url))

    def _requested(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.elsewhere.append(url)

    async def api(self, method: str, path: str, **more: Any) -> Any:
        async with httpx2.AsyncClient(base_url=self.url, timeout=PATIENCE_S) as client:
            answer = await client.request(method, path, **more)
            assert answer.status_code < 400, answer.text
            return answer.json() if answer.content else None


def _is_bad(message: Any) -> bool:
    # Reported by the browser itself and no fault of the page: a server that is away on purpose, and a
    # header that plain HTTP has no use for.
    known = ("Failed to load resource", "ERR_", "Cross-Origin-Opener-Policy")
    return message.type == "error" and not any(words in message.text for words in known)


async def _drain(out: TextReceiveStream) -> None:
    async with out:
        async for _ in out:
            pass


class Chromium:
    """A browser that the tests of a module share: starting one takes longer than most tests."""

    def __init__(self, playwright: Playwright) -> None:
        self._playwright = playwright
        self._browser: Browser | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Browser]:
        """The browser without any context. Those that the caller makes are closed afterwards."""
        if self._browser is None or not self._browser.is_connected():
            self._browser = await launch(self._playwright)
        browser = self._browser
        try:
            yield browser
        finally:
            with anyio.move_on_after(PATIENCE_S, shield=True) as closing:
                for context in browser.contexts:
                    await context.close()
            if closing.cancelled_caught:  # a page hangs: the next test gets another browser
                self._browser = None
                await browser.close()


_SHARED: ContextVar[Chromium | None] = ContextVar("_SHARED", default=None)


@asynccontextmanager
async def share_chromium() -> AsyncIterator[None]:
    """Let every ``open_house`` in here that needs no flags use the same browser."""
    async with async_playwright() as playwright:
        token = _SHARED.set(Chromium(playwright))
        try:
            yield
        finally:
            _SHARED.reset(token)


async def launch(playwright: Playwright, *flags: str) -> Browser:
    return await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])


@asynccontextmanager
async def open_browser(*flags: str) -> AsyncIterator[Browser]:
    """The shared browser if there is one and it has the flags, which are none; else one of our own."""
    shared = _SHARED.get()
    if shared is not None and not flags:
        async with shared.lend() as browser:
            yield browser
        return
    async with async_playwright() as playwright:
        browser = await launch(playwright, *flags)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_house(home: Path, *flags: str, starts: bool = True) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        await stack.enter_async_context(listener)
        group = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(
            group.cancel_scope.cancel
        )  # after Playwright has ended, or that would be cancelled too
        provider = Provider(listener.extra(_PORT))
        group.start_soon(listener.serve, provider.serve, name="provider")
        house = House(home, provider, group)
        stack.push_async_callback(house.close)
        house.browser = await stack.enter_async_context(open_browser(*flags))
        if starts:
            await house.start()
        yield house


async def say(page: Page, text: str) -> None:
    await page.fill("[data-composer]", text)
    await page.press("[data-composer]", "Enter")


async def attach(page: Page, name: str, text: str) -> None:
    """Paste a file into the message that is being written."""
    await page.evaluate(
        """([name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name, { type: "text/plain" }));
            const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
            document.querySelector("[data-composer]").dispatchEvent(event);
        }""",
        [name, text],
    )
    await expect(page.locator(".comp .att", has_text=name)).to_be_visible()
