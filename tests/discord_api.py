"""A stand-in of Discord on loopback: the HTTP API, the gateway's socket, people, and failures of every kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Any

from aiohttp import WSMsgType, web

from everturn.testing.platform_conformance import RETRY_AFTER_S

TOKEN = "token-of-the-bot"
BOT = {"id": "900", "username": "helper", "bot": True}
ADA = {"id": "7", "username": "ada", "global_name": "Ada Lovelace"}
PRIVATE, SERVER = "500", "600"  # channels
GUILD = "60"
TEXT_MAX = 2_000


class Failure(Enum):
    BUSY = auto()
    REFUSE = auto()
    BREAK_OFF = auto()  # after it was taken
    ERROR_AFTER = auto()  # 503, after it was taken
    DROP = auto()  # the connection ends before it was taken


class DiscordService:
    """``sent``: our messages by their id, as people see them."""

    def __init__(self) -> None:
        self.port = 0
        self.calls: list[str] = []  # methods and paths, in order
        self.sent: dict[str, dict[str, Any]] = {}
        self.failures: list[Failure] = []  # of the next sends
        self.remote_files: dict[str, bytes] = {}
        self.answered: list[str] = []  # interactions
        self.identified = 0
        self.resumed: list[int] = []  # after which number
        self.is_revoked = False
        self.invalidates = False  # the next resume
        self._events: list[dict[str, Any]] = []
        self._given = 0  # events that were sent to any socket
        self._sockets: list[web.WebSocketResponse] = []
        self._changed = asyncio.Event()
        self._last_id = 1 << 40
        self._last_said: dict[str, Any] = {}

    # --- people --------------------------------------------------------------------------------------

    def say(self, text: str, channel: str = PRIVATE, **more: Any) -> None:
        place = {"channel_id": channel} | ({} if channel == PRIVATE else {"guild_id": GUILD})
        self._last_said = {"id": self._number(), "type": 0, "author": ADA, "content": text} | place | more
        self.push("MESSAGE_CREATE", self._last_said)

    def people_edit(self, text: str) -> None:
        changed = {"content": text, "edited_timestamp": "2026-11-16T12:00:00+00:00"}
        self.push("MESSAGE_UPDATE", self._last_said | changed)

    def people_press(self, label: str) -> None:
        message = list(self.sent.values())[-1]
        data = next(key["custom_id"] for key in _keys(message) if key["label"] == label)
        interaction = {"id": self._number(), "token": "t", "type": 3, "channel_id": message["channel_id"]}
        self.push("INTERACTION_CREATE", interaction | {"user": ADA, "data": {"custom_id": data}})

    def push(self, event: str, data: dict[str, Any]) -> None:
        self._events.append({"op": 0, "t": event, "s": len(self._events) + 1, "d": data})
        self._changed.set()

    def read(self, channel: str = PRIVATE) -> list[str]:
        return [one["content"] for one in self.sent.values() if one["channel_id"] == channel]

    def labels(self) -> list[str]:
        return [key["label"] for key in _keys(list(self.sent.values())[-1])]

    def files(self) -> list[tuple[str, bytes]]:
        return [one["file"] for one in self.sent.values() if "file" in one]

    def lose_messages(self) -> None:
        self.sent.clear()

    def revoke(self) -> None:
        self.is_revoked = True

    def be_busy(self) -> None:
        self.failures.append(Failure.BUSY)

    def refuse(self) -> None:
        self.failures.append(Failure.REFUSE)

    def break_off(self) -> None:
        self.failures.append(Failure.BREAK_OFF)

    async def drop_sockets(self) -> None:
        for socket in self._sockets:
            await socket.close(code=4000)

    def _number(self) -> str:
        self._last_id += 1 << 22
        return str(self._last_id)

    # --- the server ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_get("/gateway/", self._gateway)
        app.router.add_get("/files/{name}", self._file)
        app.router.add_route("*", "/api/{path:.*}", self._call)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gateway/"

    async def _file(self, request: web.Request) -> web.Response:
        content = self.remote_files.get(request.match_info["name"])
        return web.Response(status=404) if content is None else web.Response(body=content)

    async def _call(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        self.calls.append(f"{request.method} {path}")
        if self.is_revoked or request.headers.get("Authorization") != f"Bot {TOKEN}":
            return _error(401, "401: Unauthorized")
        match path.split("/"):
            case ["users", "@me"]:
                return _json(BOT)
            case ["channels", channel, "messages"]:
                if channel == "404":
                    return _error(403, "Missing Access")
                if request.method == "GET":
                    return _json(self._history(channel, request.query))
                return await self._send(request, channel)
            case ["channels", _, "messages", name]:
                return await self._edit(request, name)
            case ["channels", _, "typing"]:
                return web.Response(status=204)
            case ["interactions", name, _, "callback"]:
                assert await request.json() == {"type": 6}
                self.answered.append(name)
                return web.Response(status=204)
        return _error(404, "404: Not Found")

    def _history(self, channel: str, query: Any) -> list[dict[str, Any]]:
        """The oldest messages after one, newest first, as Discord answers."""
        told = [event["d"] for event in self._events if event["t"] == "MESSAGE_CREATE"]
        found = [
            {name: value for name, value in one.items() if name != "guild_id"}
            for one in told
            if one["channel_id"] == channel and int(one["id"]) > int(query["after"])
        ]
        return found[: int(query["limit"])][::-1]

    async def _send(self, request: web.Request, channel: str) -> web.StreamResponse:
        body, more = await _body(request)
        failure = self.failures.pop(0) if self.failures else None
        if failure is Failure.BUSY:
            answer = {"message": "You are being rate limited.", "retry_after": RETRY_AFTER_S, "global": False}
            return _json(answer, 429, Via="1.1 google")
        if failure is Failure.REFUSE:
            return _error(403, "Cannot send messages to this user")
        if failure is Failure.DROP:
            return _broken(request)
        if len(body["content"]) > TEXT_MAX:
            return _error(400, "Invalid Form Body")
        assert body["enforce_nonce"]
        assert len(body["nonce"]) <= 25
        assert body["allowed_mentions"] == {"parse": []}
        message = next((one for one in self.sent.values() if one["nonce"] == body["nonce"]), None)
        if message is None:
            message = {"id": self._number(), "channel_id": channel} | body | more
            self.sent[message["id"]] = message
        if failure is Failure.BREAK_OFF:
            return _broken(request)
        if failure is Failure.ERROR_AFTER:
            return _error(503, "Service Unavailable")
        return _json({"id": message["id"]})

    async def _edit(self, request: web.Request, name: str) -> web.StreamResponse:
        if name not in self.sent:
            return _error(404, "Unknown Message")
        self.sent[name] |= await request.json()
        return _json({"id": name})

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets.append(socket)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": 41_250}})
        giving: asyncio.Task[None] | None = None
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                continue
            message = json.loads(frame.data)
            if message["op"] == 1:
                await socket.send_json({"op": 11})
            elif message["op"] in (2, 6):
                after = await self._begin(socket, message)
                if after is not None:
                    giving = asyncio.create_task(self._give(socket, after))
        if giving is not None:
            giving.cancel()
        return socket

    async def _begin(self, socket: web.WebSocketResponse, message: dict[str, Any]) -> int | None:
        """Begin or resume a session; the number of the event after which it continues."""
        if message["d"]["token"] != TOKEN or self.is_revoked:
            await socket.close(code=4004)
            return None
        if message["op"] == 6 and self.invalidates:
            self.invalidates = False
            await socket.send_json({"op": 9, "d": False})
            return None
        if message["op"] == 6:
            self.resumed.append(message["d"]["seq"])
            return int(message["d"]["seq"])
        self.identified += 1
        if self.identified > 1:  # nothing is kept for a bot that is not there
            self._given = len(self._events)
        ready = {"session_id": f"s{self.identified}", "resume_gateway_url": self.gateway_url, "user": BOT}
        await socket.send_json({"op": 0, "t": "READY", "s": self._given, "d": ready})
        return self._given

    async def _give(self, socket: web.WebSocketResponse, after: int) -> None:
        while not socket.closed:
            self._changed = changed = asyncio.Event()
            for event in self._events[after:]:
                after = event["s"]
                self._given = max(self._given, after)
                await socket.send_json(event)
            await changed.wait()


def _keys(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [key for row in message["components"] for key in row["components"]]


def _json(data: Any, status: int = 200, **headers: str) -> web.Response:
    """Discord's own type: the client takes nothing else for JSON."""
    typed = {"Content-Type": "application/json"} | headers
    return web.Response(body=json.dumps(data).encode(), status=status, headers=typed)


def _error(status: int, message: str) -> web.Response:
    return _json({"message": message, "code": 0}, status)


def _broken(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _body(request: web.Request) -> tuple[dict[str, Any], dict[str, Any]]:
    if request.content_type == "application/json":
        return await request.json(), {}
    form = await request.post()
    field: Any = form["files[0]"]
    return json.loads(str(form["payload_json"])), {"file": (field.filename, field.file.read())}
