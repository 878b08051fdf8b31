"""Builds the application from an engine, a store and the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from everturn.domain.backups import Backups
from everturn.domain.clock import Clock, SystemClock
from everturn.domain.events import AnyPayload
from everturn.domain.gateway import Gateway
from everturn.domain.ids import Ids
from everturn.domain.json_types import JsonObject
from everturn.domain.model import Models
from everturn.domain.notifications import Notifications
from everturn.domain.runtime import Runtime
from everturn.domain.store import Store
from everturn.engine import Engine
from everturn.jobs import Jobs
from everturn.models import Keys, ModelRegistry
from everturn.schedules import ScheduleBook
from everturn.skills import ARCHIVE_BYTES_MAX, BuiltSkills
from everturn.tools import EverturnToolbox, Profiles
from everturn.web.access.accounts import open_accounts
from everturn.web.access.audit import Audit
from everturn.web.access.passwords import Passwords
from everturn.web.access.token import Access
from everturn.web.api.account import AccountApi
from everturn.web.api.backups import BackupsApi
from everturn.web.api.budgets import BudgetsApi
from everturn.web.api.delegates import DelegatesApi
from everturn.web.api.documents import DocumentsApi
from everturn.web.api.files import FilesApi
from everturn.web.api.folders import FoldersApi
from everturn.web.api.gateway import GatewayApi
from everturn.web.api.jobs import JobsApi
from everturn.web.api.knowledge import KnowledgeApi
from everturn.web.api.mcp import McpApi
from everturn.web.api.models import ModelsApi
from everturn.web.api.needs import NeedsApi
from everturn.web.api.openai import OpenAiApi
from everturn.web.api.policy import PolicyApi
from everturn.web.api.profiles import ProfilesApi
from everturn.web.api.prompts import PromptsApi
from everturn.web.api.push import PushApi
from everturn.web.api.restore import RestoreApi
from everturn.web.api.schedules import SchedulesApi
from everturn.web.api.server import ServerApi, ServerParts
from everturn.web.api.sessions import SessionsApi
from everturn.web.api.settings import SettingsApi
from everturn.web.api.skills import SkillsApi
from everturn.web.api.streams import StreamsApi
from everturn.web.api.tools import ToolsApi
from everturn.web.api.turns import TurnsApi
from everturn.web.api.usage import UsageApi
from everturn.web.api.versions import VersionsApi
from everturn.web.api.workspace import WorkspaceApi
from everturn.web.deletion import Deletions
from everturn.web.http import openapi
from everturn.web.http.idempotency import FirstAnswers
from everturn.web.http.routing import AnyEndpoint, Table
from everturn.web.metrics import Metrics
from everturn.web.openai.bare_models import BareModels
from everturn.web.openai.completions import Completions
from everturn.web.preferences import PreferencesOf
from everturn.web.profile_trials import ProfileTrials
from everturn.web.request_log import RequestLog
from everturn.web.session_files import SessionFiles
from everturn.web.settings import WebSettings
from everturn.web.streams.streams import Streams
from everturn.web.uploads import Uploads
from everturn.web.web import Web
from everturn.workspace import FilesSettings, Recorder


@dataclass(frozen=True, kw_only=True)
class WebServices:
    """What the web is built on. It has endpoints for settings if ``models`` is the registry and both ``keys``
    and ``toolbox`` are given."""

    engine: Engine
    store: Store
    models: Models
    keys: Keys | None = None
    toolbox: EverturnToolbox | None = None
    recorder: Recorder | None = None
    gateway: Gateway | None = None
    notifications: Notifications | None = None
    backups: Backups | None = None
    timezone: str = "UTC"  # of budgets and schedules that name none
    jobs: Jobs | None = None
    skills: BuiltSkills | None = None
    audit: Audit | None = None  # a file in the home folder, if left out
    clock: Clock = field(default_factory=SystemClock)
    passwords: Passwords = field(default_factory=Passwords)


def build_web(services: WebServices, settings: WebSettings, *, more: Iterable[AnyEndpoint] = ()) -> Web:
    """The application. Enter it (``async with``) before serving: its background work runs inside.

    ``more``: endpoints that this room does not know, such as those of memory.
    """
    parts = _Parts(services, settings)
    server = ServerApi(
        ServerParts(
            services.engine,
            services.store,
            parts.streams,
            parts.metrics,
            services.gateway,
            services.notifications,
            services.backups,
        ),
        lambda: describe_table(web.table, settings.root),
        lambda: web.is_stopping,
    )
    table = Table([*parts.session_endpoints(), *parts.settings_endpoints(), *server.endpoints(), *more])
    web = Web(
        settings,
        table,
        parts.accounts,
        parts.streams,
        parts.lifespan,
        RequestLog(parts.metrics, services.clock, parts.ids),
    )
    if services.toolbox is not None:
        web.host_network = _with_host_network(services.toolbox.profiles)
    return web


class _Parts:
    """The parts that several groups of endpoints share, each made once."""

    def __init__(self, services: WebServices, settings: WebSettings) -> None:
        store, clock = services.store, services.clock
        self._services = services
        self._settings = settings
        self.ids = Ids(clock)
        self.metrics = Metrics()
        access = Access.open(settings.home, clock)
        self.accounts = open_accounts(store, clock, self.ids, services.passwords, access)
        self.streams = Streams(
            clock,
            self.accounts.still_valid,
            heartbeat_s=settings.heartbeat_s,
            send_timeout_s=settings.send_timeout_s,
            streams_max=settings.streams_max,
            per_owner_max=settings.streams_per_owner_max,
        )
        self._audit = services.audit or Audit(settings.home, clock)
        self._preferences = PreferencesOf(store.records)
        self._uploads = Uploads(settings.home / "uploads", settings.upload_bytes_max, settings.body_timeout_s)
        purge = partial(services.engine.delete, is_purge=True)
        self._deletions = Deletions(store.sessions, clock, purge, undo_s=settings.undo_delete_s)
        self._completions = Completions(
            services.engine,
            store,
            self._deletions,
            self._preferences,
            Runtime(clock, self.ids),
            timeout_s=settings.completion_timeout_s,
        )

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Everything that runs beside the requests."""
        if self._settings.password:
            await self.accounts.use_password(self._settings.password)
        await self._uploads.clear(self._services.clock.now_ms())
        # Completions are left last: streams that end hand over to them.
        async with self._completions, self.streams, self._deletions:
            yield

    def session_endpoints(self) -> Iterator[AnyEndpoint]:
        """Sessions, what happens in them, and who may do it."""
        services, settings, preferences = self._services, self._settings, self._preferences
        engine, store, clock = services.engine, services.store, services.clock
        sessions_max, import_bytes_max = settings.stream_sessions_max, settings.import_bytes_max
        is_configured = bool(settings.password)
        yield from SessionsApi(engine, store, self._deletions, preferences).endpoints()
        yield from TurnsApi(engine, store, self._audit, preferences).endpoints()
        yield from StreamsApi(engine, store, self.streams, clock, sessions_max=sessions_max).endpoints()
        yield from FilesApi(store.files, self._uploads).endpoints()
        archives = Uploads(settings.home / "uploads", settings.archive_bytes_max, settings.body_timeout_s)
        yield from DocumentsApi(
            engine, store, preferences, archives, import_bytes_max=import_bytes_max
        ).endpoints()
        yield from AccountApi(
            self.accounts, self._audit, self.streams, is_password_configured=is_configured
        ).endpoints()
        yield from self._openai().endpoints()
        book = ScheduleBook(store.schedules, clock, services.timezone)
        yield from SchedulesApi(engine, store, book, preferences, self._audit).endpoints()
        yield from BudgetsApi(engine, clock, services.timezone, self._audit).endpoints()
        if services.notifications is not None:
            yield from PushApi(services.notifications, self._audit).endpoints()
        if services.gateway is not None:
            yield from GatewayApi(services.gateway, store.delivery, self._audit).endpoints()
        if services.backups is not None:
            yield from BackupsApi(services.backups, self._audit).endpoints()
        yield from NeedsApi(store, clock).endpoints()
        if services.jobs is not None:
            yield from JobsApi(services.jobs, store.jobs, self._audit).endpoints()
        if services.toolbox is not None:
            recorder = services.recorder or Recorder(store, settings.home / "indexes", FilesSettings())
            files = SessionFiles(engine, store, services.toolbox, recorder)
            yield from WorkspaceApi(files, self._uploads).endpoints()
            yield from VersionsApi(files, clock).endpoints()
            yield from RestoreApi(engine, store, files).endpoints()
            yield from DelegatesApi(engine, store, recorder, self._audit, files).endpoints()
            yield from FoldersApi(services.toolbox, store.sessions).endpoints()
            yield from KnowledgeApi(services.toolbox, self._uploads, self.ids, self._audit).endpoints()
            yield from self._skills(services.toolbox)

    def _skills(self, toolbox: EverturnToolbox) -> Iterator[AnyEndpoint]:
        skills, settings = self._services.skills, self._settings
        if skills is None:
            return
        uploads = Uploads(settings.home / "uploads", ARCHIVE_BYTES_MAX, settings.body_timeout_s)
        yield from SkillsApi(skills.book, uploads, self._audit).endpoints()
        yield from PromptsApi(
            skills.prompts, skills.slash, self._services.store.sessions, toolbox
        ).endpoints()

    def _openai(self) -> OpenAiApi:
        services, settings = self._services, self._settings
        return OpenAiApi(
            self._completions,
            BareModels(services.models, self.ids),
            FirstAnswers(services.store.records, services.clock),
            self.streams,
            Runtime(services.clock, self.ids),
            timeout_s=settings.completion_timeout_s,
        )

    def settings_endpoints(self) -> Iterator[AnyEndpoint]:
        """No endpoints if a service that they need is missing."""
        services, audit, preferences = self._services, self._audit, self._preferences
        registry, keys, toolbox = services.models, services.keys, services.toolbox
        if keys is None or toolbox is None or not isinstance(registry, ModelRegistry):
            return
        sessions = services.store.sessions
        yield from SettingsApi(
            services.engine.settings, registry, keys, toolbox, preferences, audit
        ).endpoints()
        yield from UsageApi(services.store.upkeep, registry, services.clock).endpoints()
        yield from ModelsApi(registry, keys, preferences, audit).endpoints()
        yield from ToolsApi(toolbox, services.store.records).endpoints()
        trials = ProfileTrials(services.engine, services.store, toolbox, self._deletions, services.clock)
        yield from ProfilesApi(toolbox, registry, sessions, preferences, trials, audit).endpoints()
        yield from McpApi(
            toolbox, services.engine, sessions, services.store.asks, audit, self._settings.public_url
        ).endpoints()
        yield from PolicyApi(toolbox.policy, sessions, audit).endpoints()


def _with_host_network(profiles: Profiles) -> tuple[str, ...]:
    found = [f"profiles.{name}" for name, one in profiles.profiles.items() if one.host_network]
    return (*found, *(f"mcp.{name}" for name, one in profiles.servers.items() if one.host_network))


def describe_table(table: Table, base_path: str = "") -> JsonObject:
    """The OpenAPI document of a table."""
    return openapi.document(table.endpoints, base_path=base_path, extra=(AnyPayload,))
