"""Puts the room together: everything the web needs, made once, from an engine and a store."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from everturn.domain.clock import Clock, SystemClock
from everturn.domain.events import AnyPayload
from everturn.domain.ids import Ids
from everturn.domain.model import Models
from everturn.engine import Engine
from everturn.models import Keys, ModelRegistry
from everturn.store import Store
from everturn.tools import EverturnToolbox, Profiles
from everturn.web.access.accounts import Accounts
from everturn.web.access.audit import Audit
from everturn.web.access.passwords import Passwords
from everturn.web.access.throttle import Throttle
from everturn.web.access.token import Access
from everturn.web.api.account import AccountApi
from everturn.web.api.documents import DocumentsApi
from everturn.web.api.files import FilesApi
from everturn.web.api.openai import ModelNames, OpenAiApi
from everturn.web.api.server import ServerApi
from everturn.web.api.sessions import SessionsApi
from everturn.web.api.settings import SettingsApi
from everturn.web.api.streams import StreamsApi
from everturn.web.api.turns import TurnsApi
from everturn.web.api.workspace import WorkspaceApi
from everturn.web.deletion import Deletions
from everturn.web.http import openapi
from everturn.web.http.idempotency import Answers
from everturn.web.http.routing import AnyEndpoint, Table
from everturn.web.metrics import Metrics
from everturn.web.openai.completions import Completions
from everturn.web.preferences import PreferencesOf
from everturn.web.settings import WebSettings
from everturn.web.streams.streams import Streams
from everturn.web.uploads import Uploads
from everturn.web.web import Web


def open_accounts(
    store: Store,
    clock: Clock | None = None,
    ids: Ids | None = None,
    passwords: Passwords | None = None,
    access: Access | None = None,
) -> Accounts:
    """Passwords and tokens of a store: for the web, and for ``everturn password`` and ``everturn token``."""
    clock = clock or SystemClock()
    return Accounts(
        store.records, clock, ids or Ids(clock), passwords or Passwords(), Throttle(clock), access
    )


def _streams(settings: WebSettings, accounts: Accounts, clock: Clock) -> Streams:
    return Streams(
        clock,
        accounts.still_valid,
        heartbeat_s=settings.heartbeat_s,
        send_timeout_s=settings.send_timeout_s,
        streams_max=settings.streams_max,
        per_owner_max=settings.streams_per_owner_max,
    )


def build_web(
    engine: Engine,
    store: Store,
    settings: WebSettings,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    passwords: Passwords | None = None,
    models: Models,
    keys: Keys | None = None,
    toolbox: EverturnToolbox | None = None,
    more: Iterable[AnyEndpoint] = (),
) -> Web:
    """The application. Enter it (``async with``) before serving: its background work runs inside.

    The settings' endpoints are there if ``models`` is the registry and ``keys`` and ``toolbox`` are given.
    ``more``: endpoints that this room does not know, such as those of memory.
    """
    clock = clock or SystemClock()
    ids = ids or Ids(clock)
    accounts = open_accounts(store, clock, ids, passwords, Access.open(settings.home, clock))
    audit = Audit(settings.home, clock)
    metrics = Metrics()
    streams = _streams(settings, accounts, clock)
    deletions = Deletions(
        store.sessions, clock, partial(engine.delete, is_purge=True), undo_s=settings.undo_delete_s
    )
    preferences = PreferencesOf(store.records)
    sessions = SessionsApi(engine, store, deletions, preferences)
    settings_api = (
        SettingsApi(engine, store, models, keys, toolbox, preferences, audit, clock)
        if isinstance(models, ModelRegistry) and keys is not None and toolbox is not None
        else None
    )
    names = settings_api.names if settings_api is not None else None
    completions = Completions(
        engine, store, models, deletions, preferences, clock, ids, timeout_s=settings.completion_timeout_s
    )
    uploads = Uploads(settings.home / "uploads", settings.upload_bytes_max, settings.body_timeout_s)
    server = ServerApi(
        engine,
        store,
        streams,
        metrics,
        lambda: described(web.table, settings.root),
        lambda: web.is_stopping,
    )
    table = Table(
        [
            *sessions.endpoints(),
            *TurnsApi(engine, store, audit, preferences).endpoints(),
            *StreamsApi(engine, store, streams, clock, sessions_max=settings.stream_sessions_max).endpoints(),
            *FilesApi(store, uploads).endpoints(),
            *DocumentsApi(engine, store, preferences, import_bytes_max=settings.import_bytes_max).endpoints(),
            *AccountApi(accounts, audit, streams, is_password_configured=bool(settings.password)).endpoints(),
            *_openai(completions, store, models, names, streams, settings, clock, ids).endpoints(),
            *(settings_api.endpoints() if settings_api is not None else ()),
            *(WorkspaceApi(engine, toolbox, clock).endpoints() if toolbox is not None else ()),
            *server.endpoints(),
            *more,
        ]
    )
    host_network = () if toolbox is None else _with_host_network(toolbox.profiles)
    web = Web(
        settings,
        table,
        accounts,
        streams,
        deletions,
        completions,
        uploads,
        metrics,
        clock,
        ids,
        host_network=host_network,
    )
    return web


def _with_host_network(profiles: Profiles) -> tuple[str, ...]:
    found = [f"profiles.{name}" for name, one in profiles.profiles.items() if one.host_network]
    return (*found, *(f"mcp.{name}" for name, one in profiles.servers.items() if one.host_network))


def _openai(
    completions: Completions,
    store: Store,
    models: Models,
    names: ModelNames | None,
    streams: Streams,
    settings: WebSettings,
    clock: Clock,
    ids: Ids,
) -> OpenAiApi:
    async def default_only(owner: str) -> list[str]:
        return [models.default]

    answers, timeout_s = Answers(store.records, clock), settings.completion_timeout_s
    return OpenAiApi(completions, answers, streams, names or default_only, clock, ids, timeout_s=timeout_s)


def described(table: Table, base_path: str = "") -> dict[str, Any]:
    """The OpenAPI document of a table."""
    return openapi.document(table.endpoints, base_path=base_path, extra=(AnyPayload,))
