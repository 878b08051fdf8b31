"""Health, metrics, and the description of the API itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from everturn import __version__
from everturn.domain.backups import Backups
from everturn.domain.errors import EverturnError
from everturn.domain.gateway import Gateway
from everturn.domain.json_types import JsonObject
from everturn.domain.notifications import Notifications
from everturn.domain.store import Store
from everturn.domain.turns import TurnState
from everturn.engine import Engine
from everturn.web.http import docs_page
from everturn.web.http.problems import NotReady
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing, Raw
from everturn.web.metrics import Metrics, writer_figures
from everturn.web.streams.streams import Streams

# The API page has one inline style block and nothing that runs.
_DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


class Health(msgspec.Struct, frozen=True):
    status: str
    version: str


class ServerStatus(StrEnum):
    READY = "ready"
    FAILING = "failing"  # nothing can be stored; ``problem`` and ``hint`` say why
    STOPPING = "stopping"


class ServerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The few figures of ``/metrics`` that a person asks for."""

    status: ServerStatus
    version: str
    problem: str = ""
    hint: str = ""
    turns_running: int
    turns_resumed: int
    turns_interrupted: int
    turns: int
    asks_open: int
    sessions: int
    messages: int
    streams_open: int
    commit_ms_p50: float | None  # null: this store keeps no such figure, or has not written yet
    commit_ms_p99: float | None
    backup_problem: str = ""  # why the last backup was not made, is overdue, or was not restored on trial


@dataclass(frozen=True)
class ServerParts:
    """The parts whose health and figures the server reports."""

    engine: Engine
    store: Store
    streams: Streams
    metrics: Metrics
    gateway: Gateway | None = None
    notifications: Notifications | None = None
    backups: Backups | None = None


class ServerApi:
    """``describe`` makes the OpenAPI document of the whole table, when it is first asked for."""

    def __init__(
        self, parts: ServerParts, describe: Callable[[], JsonObject], is_stopping: Callable[[], bool]
    ) -> None:
        self._parts = parts
        self._describe = describe
        self._is_stopping = is_stopping
        self._document: JsonObject | None = None

    def endpoints(self) -> list[AnyEndpoint]:
        tag = "server"
        return [
            Endpoint(
                method="GET",
                path="/healthz",
                run=self.health,
                summary="The process is alive.",
                tag=tag,
                scope=None,
                answer=Health,
            ),
            Endpoint(
                method="GET",
                path="/readyz",
                run=self.ready,
                summary="The store answers and turns are taken.",
                tag=tag,
                scope=None,
                answer=Health,
            ),
            Endpoint(
                method="GET",
                path="/api/health",
                run=self.figures,
                summary="How the server is doing: its state and a few figures.",
                tag=tag,
                answer=ServerHealth,
            ),
            Endpoint(
                method="GET",
                path="/metrics",
                run=self.metrics,
                summary="Numbers for Prometheus.",
                tag=tag,
                media="text/plain",
            ),
            Endpoint(
                method="GET",
                path="/openapi.json",
                run=self.openapi,
                summary="This description.",
                tag=tag,
                scope=None,
                answer=JsonObject,
            ),
            Endpoint(
                method="GET",
                path="/docs",
                run=self.docs,
                summary="This description as a page.",
                tag=tag,
                scope=None,
                media="text/html",
            ),
        ]

    async def health(self, call: ApiCall[Nothing, Nothing]) -> Health:
        return Health("ok", __version__)

    async def ready(self, call: ApiCall[Nothing, Nothing]) -> Health:
        if self._is_stopping():
            raise NotReady("The server is shutting down.", hint="Ask another one, or wait.")
        try:
            await self._parts.store.records.get("system", "ready", "ready")
        except EverturnError as error:
            raise NotReady(f"The store does not answer: {error.message}", hint=error.hint) from error
        trouble = self._parts.store.trouble
        if trouble is not None:
            raise NotReady(
                f"Nothing can be stored: {trouble.message}", hint=trouble.hint, reason=trouble.code
            )
        return Health("ready", __version__)

    async def figures(self, call: ApiCall[Nothing, Nothing]) -> ServerHealth:
        counted = await self._parts.store.upkeep.stats()
        written = writer_figures(self._parts.store.counts())
        trouble = self._parts.store.trouble
        return ServerHealth(
            status=self._status(),
            version=__version__,
            problem=trouble.message if trouble else "",
            hint=trouble.hint if trouble else "",
            turns_running=self._parts.engine.status()["running"],
            turns_resumed=counted["resumed"],
            turns_interrupted=counted["states"].get(TurnState.INTERRUPTED, 0),
            turns=counted["turns"],
            asks_open=counted["asks"],
            sessions=counted["sessions"],
            messages=counted["messages"],
            streams_open=len(self._parts.streams),
            commit_ms_p50=_milliseconds(written.get("commit_seconds_p50")),
            commit_ms_p99=_milliseconds(written.get("commit_seconds_p99")),
            backup_problem=await self._backup_problem(),
        )

    async def _backup_problem(self) -> str:
        return "" if self._parts.backups is None else await self._parts.backups.find_problem()

    def _status(self) -> ServerStatus:
        if self._is_stopping():
            return ServerStatus.STOPPING
        return ServerStatus.FAILING if self._parts.store.trouble is not None else ServerStatus.READY

    async def metrics(self, call: ApiCall[Nothing, Nothing]) -> Raw:
        counts = self._parts.store.counts()
        gauges: JsonObject = {
            "streams": {"open": len(self._parts.streams), "cut_off_total": self._parts.streams.cut_off},
            "engine": self._parts.engine.status(),
            "store": {
                **await self._parts.store.upkeep.stats(),
                "events_total": counts.events,
                "is_failing": self._parts.store.trouble is not None,
            },
            "writer": writer_figures(counts),
            "delivery": msgspec.structs.asdict(await self._parts.store.delivery.totals()),
        }
        if self._parts.gateway is not None:
            gauges["gateway"] = self._parts.gateway.status()
        if self._parts.notifications is not None:
            gauges["notifications"] = self._parts.notifications.status()
        if self._parts.backups is not None:
            gauges["backups"] = dict(await self._parts.backups.figures())
        return Raw(self._parts.metrics.text(gauges).encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, call: ApiCall[Nothing, Nothing]) -> Raw:
        return Raw(msgspec.json.encode(self._describe_api()), "application/json")

    async def docs(self, call: ApiCall[Nothing, Nothing]) -> Raw:
        headers = ((b"content-security-policy", _DOCS_POLICY.encode()),)
        return Raw(docs_page.page(self._describe_api()), "text/html; charset=utf-8", 200, headers)

    def _describe_api(self) -> JsonObject:
        if self._document is None:
            self._document = self._describe()
        return self._document


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
