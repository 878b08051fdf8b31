"""The real server on a loopback port, with scripted models behind it, and a client in front."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.model import Models
from everturn.engine import Engine
from everturn.store import Store
from everturn.testing.clock import FakeClock
from everturn.testing.harness import open_harness
from everturn.testing.models import Answer, ScriptedModel, ScriptedModels
from everturn.web import Web, WebServices, WebSettings, build_web
from everturn.web.access.passwords import Passwords
from everturn.web.access.peers import OwnerCheck
from everturn.web.build import describe_table
from everturn.web.http.routing import AnyEndpoint
from everturn.web.server import address_of, bind, serve

PATIENCE_S = 60.0  # so that a hang fails


class StreamFrame(msgspec.Struct, frozen=True):
    """One server-sent event as a reader gets it."""

    id: str
    event: str
    data: str

    @property
    def json(self) -> Json:
        return msgspec.json.decode(self.data)


class Running:
    """A running server, with shortcuts for tests."""

    def __init__(self, url: str, web: Web, engine: Engine, store: Store, http: httpx2.AsyncClient) -> None:
        self.url = url
        self.web = web
        self.engine = engine
        self.store = store
        self.http = http

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1].strip("/").split("/")[0])

    @property
    def document(self) -> JsonObject:
        return describe_table(self.web.table)

    # ``Any``, here and below: a request is JSON, and tests send wrong ones too.
    async def new_session(self, **body: Any) -> JsonObject:
        answer = await self.http.post("/api/sessions", json=body)
        assert answer.status_code == 201, answer.text  # noqa: S101
        found: JsonObject = answer.json()
        return found

    async def send(self, session_id: str, text: str = "hello", **body: Any) -> JsonObject:
        answer = await self.http.post(f"/api/sessions/{session_id}/turns", json={"text": text, **body})
        assert answer.status_code == 202, answer.text  # noqa: S101
        found: JsonObject = answer.json()
        return found

    async def run(self, session_id: str, text: str = "hello", **body: Any) -> list[StreamFrame]:
        """Send a message and read its events to the end of the turn."""
        accepted = await self.send(session_id, text, **body)
        path = f"/api/sessions/{session_id}/events?after={accepted['cursor']}"
        return await self.read_until(path, "turn.completed", "turn.failed", "turn.cancelled", "turn.waiting")

    async def read_until(
        self, path: str, *kinds: str, headers: dict[str, str] | None = None
    ) -> list[StreamFrame]:
        """The stream's frames up to the first of one of these kinds."""
        seen = []
        with anyio.fail_after(PATIENCE_S):
            async with self.frames(path, headers=headers) as frames:
                async for frame in frames:
                    seen.append(frame)
                    if frame.event in kinds:
                        break
        return seen

    @asynccontextmanager
    async def frames(
        self, path: str, headers: dict[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[StreamFrame]]:
        async with self.http.stream("GET", path, headers=headers) as answer:
            if answer.status_code != 200:
                raise AssertionError((await answer.aread()).decode())
            yield frames_of(answer.aiter_bytes())


async def frames_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[StreamFrame]:
    """Parse server-sent events from bytes, without heartbeats and ``retry``."""
    rest = b""
    async for piece in pieces:
        # Only a newline ends a line: str.splitlines would also split at characters that belong to the data.
        *whole, rest = (rest + piece).split(b"\n\n")
        for block in whole:
            frame = _frame(block.decode())
            if frame is not None:
                yield frame


def _frame(block: str) -> StreamFrame | None:
    fields = {"id": "", "event": "", "data": ""}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        if name in fields:
            fields[name] = value.removeprefix(" ")
    return StreamFrame(**fields) if fields["event"] or fields["data"] else None


def web_settings(home: Path, **changes: Any) -> WebSettings:
    return WebSettings(**{"home": home, "port": 0, "page": home / "no-page", "grace_s": 0.0, **changes})


@asynccontextmanager
async def run_web(
    store: Store,
    home: Path,
    *script: Answer,
    clock: Clock | None = None,
    settings: JsonObject | None = None,
    more: Sequence[AnyEndpoint] = (),
    headers: dict[str, str] | None = None,
    extras: JsonObject | None = None,
    models: Models | None = None,
    is_owner: OwnerCheck | None = None,
    **options: Any,
) -> AsyncIterator[Running]:
    """Serve on an ephemeral port of 127.0.0.1 until the context ends, then shut down as SIGTERM would.
    ``is_owner``: as for ``serve``."""
    used_clock = FakeClock() if clock is None else clock
    used = web_settings(home, **(settings or {}))
    used_models = models or ScriptedModels(ScriptedModel(*script, clock=used_clock))
    async with open_harness(store, clock=used_clock, models=used_models, **options) as harness:
        services = WebServices(
            engine=harness.engine,
            store=store,
            models=used_models,
            clock=used_clock,
            passwords=Passwords(memory_kib=64, rounds=1),
            **(extras or {}),
        )
        web = build_web(services, used, more=more)
        async with web, _listening(web, used, harness.engine, is_owner) as listener:
            url = address_of(listener, used)
            limits = httpx2.Limits(max_connections=None)
            async with httpx2.AsyncClient(
                base_url=url, headers=headers, limits=limits, timeout=PATIENCE_S, trust_env=False
            ) as http:
                yield Running(url, web, harness.engine, store, http)


@asynccontextmanager
async def _closing_socket(listener: socket.socket) -> AsyncIterator[None]:
    with listener:
        yield


@asynccontextmanager
async def _listening(
    web: Web, settings: WebSettings, engine: Engine, is_owner: OwnerCheck | None
) -> AsyncIterator[socket.socket]:
    listener = bind(settings)
    # Small, so that a reader that stops reading is noticed soon; connections inherit it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    async with _closing_socket(listener), anyio.create_task_group() as group:
        ready = anyio.Event()

        async def run() -> None:
            await serve(
                web,
                settings,
                drain=engine.stop,
                on_ready=lambda _: ready.set(),
                sockets=[listener],
                is_owner=is_owner,
            )

        group.start_soon(run, name="server")
        await ready.wait()
        try:
            yield listener
        finally:
            web.stop()
