"""A stand-in for Slack on loopback: its Web API and the socket that it delivers events on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from aiohttp import WSMsgType, web

from everturn.testing.platform_conformance import RETRY_AFTER_S

BOT, BOT_TOKEN, APP_TOKEN = "U_BOT", "xoxb-test", "xapp-test"
DIRECT, PERSON = "D_ADA", "U_ADA"


class SlackService:
    """Delivers each envelope until it is acknowledged: again on every new connection, in order."""

    def __init__(self) -> None:
        self.port = 0
        self.posted: list[dict[str, Any]] = []  # messages of the bot that people can see
        self.shared: list[tuple[str, bytes]] = []
        self.uploads: dict[str, tuple[str, bytes]] = {}
        self.stored_files: dict[str, bytes] = {}
        self.file_host = ""
        self.calls: list[str] = []
        self.failures: list[Callable[[], web.Response] | str] = []  # of the next methods that write
        self.envelopes: list[dict[str, Any]] = []  # not acknowledged yet
        self.acknowledged: list[str] = []
        self.history: list[dict[str, Any]] = []  # all messages of people
        self.may_read_history = True
        self.may_read_names = True
        self.names_hang = False
        self.people: dict[str, dict[str, Any]] = {PERSON: {"profile": {"display_name": "Ada Lovelace"}}}
        self.connections = 0
        self.is_revoked = False
        self._clock = 1_700_000_000_000_000
        self._last: dict[str, Any] = {}
        self._changed = anyio.Event()
        self._sockets: set[web.WebSocketResponse] = set()

    # --- people --------------------------------------------------------------------------------------

    def say(self, text: str, channel: str = DIRECT, **fields: Any) -> dict[str, Any]:
        self._last = {
            "type": "message",
            "channel": channel,
            "user": PERSON,
            "text": text,
            "ts": self._ts(),
            **fields,
        }
        self.history.append(self._last)
        self.emit_event(self._last)
        return self._last

    def say_unheard(self, text: str, channel: str = DIRECT) -> None:
        """Let a person write what is never delivered: no connection was open for too long."""
        self.history.append(
            {"type": "message", "channel": channel, "user": PERSON, "text": text, "ts": self._ts()}
        )

    def people_edit(self, text: str) -> None:
        changed = {
            "subtype": "message_changed",
            "message": {**self._last, "text": text},
            "previous_message": self._last,
        }
        self.emit_event(
            {"type": "message", "channel": self._last["channel"], "event_ts": self._ts(), **changed}
        )

    def people_delete(self) -> None:
        deleted = {"subtype": "message_deleted", "previous_message": self._last}
        self.emit_event(
            {"type": "message", "channel": self._last["channel"], "event_ts": self._ts(), **deleted}
        )

    def people_press(self, label: str) -> None:
        message = self.posted[-1]
        button = next(one for one in _buttons(message) if one["text"]["text"] == label)
        action = {"action_id": button["action_id"], "action_ts": self._ts(), "value": button.get("value")}
        self.emit(
            "interactive",
            {
                "type": "block_actions",
                "user": {"id": PERSON, "username": "ada"},
                "channel": {"id": message["channel"]},
                "message": {"ts": message["ts"], "thread_ts": message.get("thread_ts")},
                "actions": [action],
            },
        )

    def emit_event(self, event: dict[str, Any]) -> None:
        self.emit("events_api", {"event_id": f"Ev{self._ts()}", "event": event})

    def emit(self, kind: str, payload: Any) -> None:
        self.envelopes.append({"type": kind, "envelope_id": f"env-{self._ts()}", "payload": payload})
        self._changed.set()

    def read(self) -> list[str]:
        return [message["text"] for message in self.posted]

    def labels(self) -> list[str]:
        return [button["text"]["text"] for button in _buttons(self.posted[-1])]

    def files(self) -> list[tuple[str, bytes]]:
        return self.shared

    # --- failures ------------------------------------------------------------------------------------

    def be_busy(self) -> None:
        self.failures.append(
            lambda: web.json_response(
                {"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": str(RETRY_AFTER_S)}
            )
        )

    def refuse(self, reason: str = "channel_not_found") -> None:
        self.failures.append(lambda: web.json_response({"ok": False, "error": reason}))

    def break_off(self) -> None:
        self.failures.append("break off")

    def answer_500(self) -> None:
        """Take the next send and answer 500 all the same."""
        self.failures.append("500")

    def revoke(self) -> None:
        self.is_revoked = True

    def lose_messages(self) -> None:
        self.posted.clear()

    async def disconnect(self, reason: str) -> None:
        for socket in list(self._sockets):
            await socket.send_json({"type": "disconnect", "reason": reason})

    async def drop_sockets(self) -> None:
        for socket in list(self._sockets):
            await socket.close()

    async def send_raw(self, text: str) -> None:
        for socket in list(self._sockets):
            await socket.send_str(text)

    # --- the server ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_get("/socket", self._socket)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_get("/download/{id}", self._download)
        app.router.add_route("*", "/api/{method}", self._call)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await self.drop_sockets()
            await runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        self._sockets.add(socket)
        try:
            await socket.send_json({"type": "hello", "num_connections": len(self._sockets)})
            async with anyio.create_task_group() as group:
                group.start_soon(self._deliver, socket)
                async for message in socket:
                    if message.type is WSMsgType.TEXT:
                        self.acknowledge(json.loads(message.data)["envelope_id"])
                group.cancel_scope.cancel()
        finally:
            self._sockets.discard(socket)
        return socket

    async def _deliver(self, socket: web.WebSocketResponse) -> None:
        sent: set[str] = set()
        while True:
            for envelope in list(self.envelopes):
                if envelope["envelope_id"] not in sent and not socket.closed:
                    sent.add(envelope["envelope_id"])
                    await socket.send_json(envelope)
            self._changed = anyio.Event()
            await self._changed.wait()

    def acknowledge(self, envelope_id: str) -> None:
        self.acknowledged.append(envelope_id)
        self.envelopes = [one for one in self.envelopes if one["envelope_id"] != envelope_id]

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        self.calls.append(method)
        sent = (
            await request.json() if request.content_type == "application/json" else dict(await request.post())
        )
        sent |= request.query
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if self.is_revoked or token != wanted:
            return web.json_response(
                {"ok": False, "error": "token_revoked" if self.is_revoked else "invalid_auth"}
            )
        failure = self.failures.pop(0) if self.failures and method in _WRITES else None
        if callable(failure):
            return failure()
        if method == "users.info" and self.names_hang:
            await anyio.sleep_forever()
        answer = self._answer(method, sent)
        if failure == "500":
            return web.Response(status=500, text="<html>", content_type="text/html")
        if failure == "break off":
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"ok": "error" not in answer, **answer})

    def _answer(self, method: str, sent: dict[str, Any]) -> dict[str, Any]:
        answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "auth.test": lambda _: {"user_id": BOT, "user": "everturn", "url": "https://example.slack.com/"},
            "apps.connections.open": lambda _: {"url": f"ws://127.0.0.1:{self.port}/socket"},
            "chat.postMessage": self.post,
            "chat.update": self._update,
            "files.getUploadURLExternal": self._offer_upload,
            "files.completeUploadExternal": self._share,
            "files.info": self._describe,
            "users.conversations": self._list_channels,
            "users.info": self._introduce,
            "conversations.history": self._page,
        }
        return answers[method](sent)

    def post(self, sent: dict[str, Any]) -> dict[str, Any]:
        problem = _check_content(sent)
        if problem:
            return {"error": problem}
        message = {**sent, "ts": self._ts()}
        self.posted.append(message)
        return {"ts": message["ts"], "channel": sent["channel"]}

    def _update(self, sent: dict[str, Any]) -> dict[str, Any]:
        for message in self.posted:
            if (message["channel"], message["ts"]) == (sent["channel"], sent["ts"]):
                message.update(text=sent["text"], blocks=sent.get("blocks", message.get("blocks")))
                return {"ts": sent["ts"]}
        return {"error": "message_not_found"}

    def _list_channels(self, sent: dict[str, Any]) -> dict[str, Any]:
        if not self.may_read_history:
            return {"error": "missing_scope"}
        return {"channels": [{"id": name} for name in sorted({one["channel"] for one in self.history})]}

    def _introduce(self, sent: dict[str, Any]) -> dict[str, Any]:
        if not self.may_read_names:
            return {"error": "missing_scope"}
        if sent["user"] not in self.people:
            return {"error": "user_not_found"}
        return {"user": {"id": sent["user"], "name": "login", **self.people[sent["user"]]}}

    def _page(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Newest first, two at a time."""
        in_channel = [one for one in self.history if one["channel"] == sent["channel"]]
        found = [one for one in reversed(in_channel) if one["ts"] > sent["oldest"]]
        start = int(sent.get("cursor") or 0)
        messages = [{key: one[key] for key in one if key != "channel"} for one in found[start : start + 2]]
        more = str(start + 2) if len(found) > start + 2 else ""
        return {"messages": messages, "response_metadata": {"next_cursor": more}}

    def _offer_upload(self, sent: dict[str, Any]) -> dict[str, Any]:
        file_id = f"F{self._ts()}"
        self.uploads[file_id] = (sent["filename"], b"")
        return {"upload_url": f"{self.url}/upload/{file_id}", "file_id": file_id}

    def _share(self, sent: dict[str, Any]) -> dict[str, Any]:
        for file in _decoded(sent["files"]):
            self.shared.append(self.uploads[file["id"]])
        return {"files": []}

    def _describe(self, sent: dict[str, Any]) -> dict[str, Any]:
        if sent["file"] not in self.stored_files:
            return {"error": "file_not_found"}
        return {"file": {"url_private_download": f"{self.file_host or self.url}/download/{sent['file']}"}}

    async def _upload(self, request: web.Request) -> web.Response:
        name, _ = self.uploads[request.match_info["id"]]
        self.uploads[request.match_info["id"]] = (name, await request.read())
        return web.Response(text="OK")

    async def _download(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {BOT_TOKEN}"
        return web.Response(body=self.stored_files[request.match_info["id"]])

    def _ts(self) -> str:
        self._clock += 1_000_100
        return f"{self._clock // 1_000_000}.{self._clock % 1_000_000:06d}"


_WRITES = ("chat.postMessage", "chat.update", "files.completeUploadExternal", "files.info")


def _decoded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _buttons(message: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = _decoded(message.get("blocks") or "[]")
    return [button for block in blocks if block["type"] == "actions" for button in block["elements"]]


def _check_content(sent: dict[str, Any]) -> str:
    """What Slack refuses about a message."""
    if not sent["text"]:
        return "no_text"
    if len(sent["text"]) > 40_000:
        return "msg_too_long"
    blocks = _decoded(sent.get("blocks") or "[]")
    sections = [block["text"]["text"] for block in blocks if block["type"] == "section"]
    return "invalid_blocks" if any(not 0 < len(text) <= 3_000 for text in sections) else ""
