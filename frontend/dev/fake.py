"""A server for working on the page: the real surface and the real fold over sessions kept in memory.

    python frontend/dev/fake.py [port]

It plays every state the page can show (scenes.py) and answers new messages by keyword. `POST /dev/cut`
drops all streams, `POST /dev/down` refuses everything for some seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

sys.path.insert(0, str(Path(__file__).parent))

import scenes
from house import House

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'"
)
METRICS = """everturn_store_resumed 7
everturn_store_interrupted 0
everturn_engine_running 2
everturn_store_asks 3
everturn_store_sessions 412
everturn_store_turns 3871
everturn_store_messages 15204
everturn_streams_open 1
everturn_writer_commit_seconds_p50 0.0011
everturn_writer_commit_seconds_p99 0.0064
"""
PAGE = Path(__file__).parents[2] / "src/everturn/web/page"


def reply(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem(status: int, code: str, detail: str, hint: str = "") -> Response:
    return JSONResponse({"status": status, "code": code, "detail": detail, "hint": hint}, status)


class Surface:
    def __init__(self, house: House) -> None:
        self.house = house
        self.down_until = 0.0
        self.generation = 0
        self.password: str | None = None
        self.is_signed_in = True

    def routes(self) -> list[Any]:
        one = "/api/sessions/{id}"
        return [
            Route("/api/sessions", self.sessions, methods=["GET", "POST"]),
            Route(one, self.session, methods=["GET", "PATCH", "DELETE"]),
            Route(one + "/messages", self.messages),
            Route(one + "/turns", self.turns, methods=["POST"]),
            Route(one + "/queue", self.queue),
            Route(one + "/queue/{turn}", self.queued, methods=["PATCH", "DELETE"]),
            Route(one + "/{move:str}", self.move, methods=["POST"]),
            Route("/api/turns/{turn}", self.turn),
            Route("/api/turns/{turn}/{act:str}", self.act, methods=["POST", "GET"]),
            Route("/api/approvals/{ask}", self.answer, methods=["POST"]),
            Route("/api/questions/{ask}", self.answer, methods=["POST"]),
            Route("/api/events", self.events),
            Route("/api/search", self.search),
            Route("/api/uploads", self.upload, methods=["POST"]),
            Route("/readyz", lambda _: reply({"status": "ready", "version": "0.1.0"})),
            Route("/metrics", lambda _: Response(METRICS, media_type="text/plain")),
            Route("/api/approvals", lambda _: reply({"items": self.house.open_asks()})),
            Route("/api/models", lambda _: reply(scenes.MODELS)),
            Route("/api/{rest:path}", self.rest, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            Route("/dev/{what}", self.dev, methods=["POST"]),
            Mount("/", StaticFiles(directory=PAGE, html=True, check_dir=False)),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any, app: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/api"):
            if time.monotonic() < self.down_until:
                return await problem(503, "store_away", "The server is away.")(scope, receive, send)
            if self.password and not self.is_signed_in and scope["path"] != "/api/signin":
                return await problem(401, "sign_in_needed", "Sign in.")(scope, receive, send)
        await app(scope, receive, self._guarded(send))

    def _guarded(self, send: Any) -> Any:
        async def wrapped(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        return wrapped

    async def sessions(self, request: Request) -> Response:
        if request.method == "POST":
            return reply(self.house.create(key=request.headers.get("idempotency-key")), 201)
        archived = request.query_params.get("archived") == "true"
        rows = [row for row in self.house.rows() if row.archived == archived]
        start = int(request.query_params.get("cursor") or 0)
        limit = int(request.query_params.get("limit") or 50)
        more = start + limit < len(rows)
        page: dict[str, Any] = {"items": rows[start : start + limit]}
        if more:
            page["cursor"] = str(start + limit)
        return reply(page)

    async def session(self, request: Request) -> Response:
        ident = request.path_params["id"]
        if ident not in self.house.sessions:
            return problem(404, "not_found", f"There is no session {ident}.")
        if request.method == "DELETE":
            self.house.hide(ident)
            return reply({"id": ident, "due_at": 0}, 202)
        if request.method == "PATCH":
            return reply(self.house.change(ident, await request.json()))
        return reply(self.house.sessions[ident].row)

    async def messages(self, request: Request) -> Response:
        ident = request.path_params["id"]
        if ident not in self.house.sessions:
            return problem(404, "not_found", f"There is no session {ident}.")
        limit = int(request.query_params.get("limit") or 50)
        return reply(self.house.page(ident, request.query_params.get("before"), limit))

    async def turns(self, request: Request) -> Response:
        body = await request.json()
        ident = request.path_params["id"]
        key = request.headers.get("idempotency-key") or ""
        accepted = self.house.accept(ident, body, key)
        return reply(accepted, 202)

    async def queue(self, request: Request) -> Response:
        return reply({"items": self.house.sessions[request.path_params["id"]].queued()})

    async def queued(self, request: Request) -> Response:
        session = self.house.sessions[request.path_params["id"]]
        turn = request.path_params["turn"]
        if request.method == "DELETE":
            session.remove_queued(turn)
            return Response(status_code=204)
        session.edit_queued(turn, (await request.json())["text"])
        return reply(session.turns[turn].row)

    async def move(self, request: Request) -> Response:
        body = await request.json() if await request.body() else {}
        ident, name = request.path_params["id"], request.path_params["move"]
        result = self.house.move(ident, name, body)
        if result is None:
            return problem(409, "nothing_to_do", "There is nothing to undo.")
        return reply(
            result, 201 if name == "branch" else 202 if name in ("retry", "edit", "compact") else 200
        )

    async def turn(self, request: Request) -> Response:
        return reply(self.house.turn(request.path_params["turn"]).row)

    async def act(self, request: Request) -> Response:
        turn, act = self.house.turn(request.path_params["turn"]), request.path_params["act"]
        if act == "cancel":
            self.house.cancel(turn)
        elif act == "resume":
            self.house.resume(turn)
        return reply(turn.row)

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.house.answer(request.path_params["ask"], body.get("decision") or body.get("answer"))
        return reply({"id": request.path_params["ask"]})

    async def search(self, request: Request) -> Response:
        return reply({"items": self.house.search(request.query_params.get("q", ""))})

    async def upload(self, request: Request) -> Response:
        form = await request.form()
        file: Any = form["file"]
        return reply({"id": self.house.ids.file(), "name": file.filename, "media_type": "", "size": 0}, 201)

    async def rest(self, request: Request) -> Response:
        path = request.path_params["rest"]
        if path == "signin":
            if (await request.json()).get("password") != self.password:
                return problem(401, "wrong_password", "The password is wrong.")
            self.is_signed_in = True
            return reply({})
        if path.endswith("/export"):
            return Response("{}", media_type="application/json")
        value = scenes.around(path, request.method)
        return problem(404, "no_route", f"Nothing is served at {path}.") if value is None else reply(value)

    async def dev(self, request: Request) -> Response:
        what = request.path_params["what"]
        if what == "cut":
            self.generation += 1
        elif what == "down":
            self.down_until = time.monotonic() + float(request.query_params.get("s", "3"))
            self.generation += 1
        elif what == "lock":
            self.password, self.is_signed_in = "secret", False
            self.generation += 1
        async with self.house.news:
            self.house.news.notify_all()
        return reply({})

    async def events(self, request: Request) -> Response:
        wanted = [ident for ident in (request.query_params.get("sessions") or "").split(",") if ident]
        cursors = {}
        for item in (request.headers.get("last-event-id") or "").split(","):
            if ":" in item:
                cursors[item.split(":")[0]] = int(item.split(":")[1])
        positions = {ident: cursors.get(ident, 0) for ident in wanted if ident in self.house.sessions}
        return StreamingResponse(self._stream(positions), media_type="text/event-stream")

    async def _stream(self, positions: dict[str, int]) -> AsyncIterator[bytes]:
        generation = self.generation
        seen = self.house.list_position
        rows = [row for row in self.house.rows() if not row.archived][:50]
        yield b"event: sessions.snapshot\ndata: " + msgspec.json.encode({"sessions": rows}) + b"\n\n"
        while generation == self.generation:
            chunk = b""
            for ident in positions:
                for event in self.house.sessions[ident].events[positions[ident] :]:
                    positions[ident] = event.position
                    head = f"id: {','.join(f'{k}:{v}' for k, v in positions.items())}\nevent: {event.kind}\n"
                    body = {
                        "session_id": ident,
                        "position": event.position,
                        "turn_id": event.turn_id,
                        "at": event.at,
                        "event": msgspec.Raw(event.data),
                    }
                    chunk += head.encode() + b"data: " + msgspec.json.encode(body) + b"\n\n"
            for kind, row in self.house.list_news[seen:]:
                chunk += (
                    f"event: {kind}\n".encode()
                    + b"data: "
                    + msgspec.json.encode({"kind": kind, "session_id": row.id, "session": row})
                    + b"\n\n"
                )
            seen = self.house.list_position
            if chunk:
                yield chunk
                continue
            async with self.house.news:
                try:
                    await asyncio.wait_for(self.house.news.wait(), 15)
                except TimeoutError:
                    yield b":\n\n"


def application(house: House | None = None) -> Any:
    house = house or scenes.full()
    surface = Surface(house)
    inner = Starlette(routes=surface.routes())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await surface(scope, receive, send, inner)

    return app


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8421
    scene = sys.argv[2] if len(sys.argv) > 2 else "full"
    uvicorn.run(
        application(getattr(scenes, scene)()),
        host="127.0.0.1",
        port=port,
        log_level="warning",
        lifespan="off",
    )
