"""The composition root, and the only module that imports every package. Builds, starts and stops the app."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from everturn.backups import BackupRunner, BackupServices
from everturn.config import Config
from everturn.delivery import AccountServices, AccountSettings, NotificationService
from everturn.domain.backups import Backups
from everturn.domain.clock import Clock, SystemClock
from everturn.domain.gateway import Gateway
from everturn.domain.ids import Ids
from everturn.domain.notifications import Notifications
from everturn.domain.probe import Probe
from everturn.domain.runtime import Runtime
from everturn.domain.secrets import Secrets
from everturn.domain.timezones import find_zone
from everturn.domain.tool import Tool
from everturn.domain.turn_traces import TurnTraces
from everturn.engine import Delegates, Engine, EngineParts, EngineSettings
from everturn.engine import TurnProfile as EngineProfile
from everturn.gateway import AccountBook, BookServices, GatewayAccounts, RunningServices
from everturn.jobs import Jobs, JobServices
from everturn.memory import NOTES, BuiltMemory, build_memory, import_notes
from everturn.models.keys import Keys
from everturn.models.registry import ModelRegistry
from everturn.models.weights import make_shelf
from everturn.schedules import ScheduleBook, ScheduleCommand, ScheduleRunner, SchedulesTool
from everturn.skills import BuiltSkills, build_skills
from everturn.store import Store, find_storage_keys, open_secrets, open_store, read_key_ring
from everturn.tools import EverturnToolbox, Fetcher, Sandbox, ToolServices
from everturn.tools.profile_book import ProfileBook
from everturn.tools.profiles import DEFAULT, DEFAULT_PROMPT, POCKET, SHORT_PROMPT, Profiles
from everturn.tracing import open_traces
from everturn.web import LOCAL_OWNER, Web, WebServices, build_web, open_accounts
from everturn.web.access.audit import Audit
from everturn.web.api.memory import MemoryApi
from everturn.workspace import Recorder


class App(msgspec.Struct, frozen=True):
    """The running parts, opened in order of their dependencies."""

    config: Config
    store: Store
    models: ModelRegistry
    keys: Keys
    toolbox: EverturnToolbox
    engine: Engine
    memory: BuiltMemory
    recorder: Recorder
    jobs: Jobs
    clock: Clock
    secrets: Secrets
    environ: Mapping[str, str]
    skills: BuiltSkills
    traces: TurnTraces
    audit: Audit


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    clock: Clock | None = None,
    probe: Probe | None = None,
    environ: Mapping[str, str] | None = None,
    tools: Sequence[Tool] = (),
    fetcher: Fetcher | None = None,
) -> AsyncIterator[App]:
    """Open the store, then the parts that use it, then the engine. ``tools``: those of an embedding program.
    ``fetcher``: reads pages of the web; by default public ones only.

    Leaving closes in reverse: the engine releases its turns first, the store closes last.
    """
    clock = clock or SystemClock()
    runtime = Runtime(clock, Ids(clock), probe or Probe())
    async with AsyncExitStack() as stack:
        base = await _open_base(stack, config, runtime, os.environ if environ is None else environ)
        work = _make_work(base)
        toolbox = await stack.enter_async_context(_make_toolbox(base, work, tools, fetcher))
        recorder = Recorder(base.store, config.home / "indexes", config.files)
        parts = EngineParts(
            base.store,
            base.models,
            toolbox,
            base.memory.memory if config.memory.provider else None,
            recorder,
            config.budget.guest_budgets(),
            work.delegates,
            work.skills.turns,
            lambda: read_turn_profiles(work.profiles),
            toolbox.own.hooks,
        )
        traces = await stack.enter_async_context(open_traces(config.traces, base.store, clock))
        traced = dataclasses.replace(runtime, traces=traces)
        engine = await stack.enter_async_context(Engine(parts, traced, engine_settings(config)))
        await stack.enter_async_context(work.jobs.serve(engine.worker, engine.nudge))
        yield App(
            config,
            base.store,
            base.models,
            base.keys,
            toolbox,
            engine,
            base.memory,
            recorder,
            work.jobs,
            clock,
            base.secrets,
            base.environ,
            work.skills,
            traces,
            Audit(config.home, clock),
        )


class _Base(msgspec.Struct, frozen=True):
    """What everything else is built on."""

    config: Config
    runtime: Runtime
    environ: Mapping[str, str]
    store: Store
    secrets: Secrets
    keys: Keys
    models: ModelRegistry
    memory: BuiltMemory


class _Work(msgspec.Struct, frozen=True):
    """What tools use beside the store."""

    sandbox: Sandbox
    jobs: Jobs
    profiles: ProfileBook
    skills: BuiltSkills
    delegates: Delegates


async def _open_base(
    stack: AsyncExitStack, config: Config, runtime: Runtime, environ: Mapping[str, str]
) -> _Base:
    clock = runtime.clock
    store = await stack.enter_async_context(
        open_store(
            config.database_url, data_dir=config.home, clock=clock, probe=runtime.probe, settings=config.store
        )
    )
    ring = read_key_ring(environ, config.secret_key_file)
    secrets = await stack.enter_async_context(open_secrets(store, config.home, ring))
    store.blobs.use_keys(lambda: find_storage_keys(secrets, environ))
    keys = Keys(secrets, environ)
    shelf = make_shelf(config.home, environ)
    models = await stack.enter_async_context(
        ModelRegistry(config.models, keys, clock, environ, shelf, default=config.model)
    )
    memory = build_memory(store, models, config.home, runtime, settings=config.memory)
    await import_notes(memory, config.home, runtime.ids)
    return _Base(config, runtime, environ, store, secrets, keys, models, memory)


def _make_work(base: _Base) -> _Work:
    config, store, runtime = base.config, base.store, base.runtime
    sandbox = Sandbox(config.home)
    folder = config.home / "jobs"
    services = JobServices(store.jobs, store.files, store.machine, sandbox, runtime, folder)
    profiles = ProfileBook(config.profiles, store.records)
    skills = build_skills(
        store,
        config.home,
        runtime,
        owner=LOCAL_OWNER,
        names_of=lambda profile: _skills_of(profiles, profile),
    )
    delegates = Delegates(store, runtime.clock, config.delegates)
    return _Work(sandbox, Jobs(services, config.jobs), profiles, skills, delegates)


def _make_toolbox(
    base: _Base, work: _Work, tools: Sequence[Tool], fetcher: Fetcher | None
) -> EverturnToolbox:
    config = base.config
    services = msgspec.structs.replace(
        _tool_services(base),
        jobs=work.jobs if config.jobs.per_session_max else None,
        delegates=work.delegates if config.delegates.depth_max else None,
        skill_folders=work.skills.turns,
    )
    extra = [*tools, *_own_tools(base), work.skills.tool]
    return EverturnToolbox(
        config.home, services, config.profiles, sandbox=work.sandbox, fetcher=fetcher, extra=extra
    )


def _own_tools(base: _Base) -> list[Tool]:
    """The built-in tools of rooms that the toolbox may not import."""
    book = ScheduleBook(base.store.schedules, base.runtime.clock, base.config.budget.timezone)
    schedules = SchedulesTool(base.store, book, base.models)
    return [schedules, base.memory.tool] if base.config.memory.provider == NOTES else [schedules]


def _tool_services(base: _Base) -> ToolServices:
    store, runtime = base.store, base.runtime
    return ToolServices(
        store.records,
        store.search,
        runtime.clock,
        secret=lambda name: _secret(base.keys, name),
        secrets=base.secrets,
        has_sign_in=open_accounts(store, runtime.clock, runtime.ids).is_sign_in_on,
        roots=base.config.files.root_folders(),
        web_search=base.config.search,
        packages=base.config.packages,
        files=store.files,
        blobs=store.blobs,
        machine=store.machine,
    )


def _secret(keys: Keys, name: str) -> str | None:
    """A key by its name, for web search and the MCP servers that are configured to get it."""
    found = keys.find(name, (name,))
    return found.secret.reveal() if found else None


def engine_settings(config: Config) -> EngineSettings:
    """The engine's settings, with the prompts and models of the profiles."""
    profiles: Profiles = config.profiles
    return msgspec.structs.replace(
        config.engine,
        system_prompt=profiles.get(DEFAULT).prompt,
        small_prompt=profiles.get(POCKET).prompt,
        short_prompts={DEFAULT_PROMPT: SHORT_PROMPT},
        profiles=_for_engine(profiles),
    )


def _for_engine(profiles: Profiles) -> dict[str, EngineProfile]:
    return {
        name: EngineProfile(
            name,
            one.prompt,
            one.model,
            parameters=one.parameters,
            memory=one.memory,
            budget_usd=one.budget_usd,
            budget_tokens=one.budget_tokens,
        )
        for name, one in {**profiles.trials, **profiles.profiles}.items()
    }


async def read_turn_profiles(book: ProfileBook) -> dict[str, EngineProfile]:
    return _for_engine(await book.refresh())


async def _skills_of(book: ProfileBook, profile: str | None) -> tuple[str, ...] | None:
    return (await book.get(profile)).skills


def open_gateway(app: App) -> GatewayAccounts:
    """The accounts on messaging platforms; they are served while it is entered. Only a server enters it: a
    command or an embedding program that ends soon must not take messages."""

    async def profiles() -> list[str]:
        return (await app.toolbox.profile_book.refresh()).names

    async def notes(owner: str, limit: int) -> list[str]:
        found = await app.memory.notebooks.notes(owner)
        return [note.text for note in reversed(found[-limit:])]

    delivery = AccountServices(
        app.store,
        app.engine,
        app.clock,
        app.engine.worker,
        models=app.models,
        profiles=profiles,
        page_url=app.config.web.public_url,
        timezone=app.config.budget.timezone,
        schedule=ScheduleCommand(
            app.store,
            ScheduleBook(app.store.schedules, app.clock, app.config.budget.timezone),
            app.engine,
            app.audit,
        ),
        slash=app.skills.slash,
        traces=app.traces,
        audit=app.audit,
        notes=notes,
    )
    settings = AccountSettings(age_max_s=app.config.delivery.age_max_s)
    kept = BookServices(app.store, app.secrets, app.environ, app.clock, LOCAL_OWNER)
    book = AccountBook(app.config.gateway, kept)
    return GatewayAccounts(RunningServices(book, delivery, settings))


def open_notifications(app: App) -> NotificationService:
    """Composes and sends notifications while it is entered, which only a server does, as with accounts."""
    services = AccountServices(
        app.store, app.engine, app.clock, app.engine.worker, page_url=app.config.web.public_url
    )
    return NotificationService(services, app.secrets, Ids(app.clock), app.config.notifications)


def open_schedules(app: App) -> ScheduleRunner:
    """Runs schedules while it is entered. Only a server enters it, as with accounts."""
    return ScheduleRunner(app.store.schedules, app.engine, app.clock)


def open_backups(app: App) -> BackupRunner:
    """Makes backups while it is entered. Only a server enters it, as with accounts."""
    zone = find_zone(app.config.budget.timezone)
    services = BackupServices(
        app.store,
        app.clock,
        app.config.home,
        app.engine.worker,
        zone,
        app.config.database_direct_url or app.config.database_url or "",
        lambda: find_storage_keys(app.secrets, os.environ),
    )
    return BackupRunner(services, app.config.backup)


@asynccontextmanager
async def open_knowledge(app: App) -> AsyncIterator[None]:
    """Keeps the indexes of knowledge in step while it is entered. Only a server enters it, as with
    accounts."""
    library = app.toolbox.knowledge
    serve = asyncio.create_task(library.serve() if library else asyncio.sleep(0), name="knowledge")
    try:
        yield
    finally:
        serve.cancel()
        await asyncio.gather(serve, return_exceptions=True)


def open_web(
    app: App,
    gateway: Gateway | None = None,
    notifications: Notifications | None = None,
    backups: Backups | None = None,
) -> Web:
    """The web application over an open app; enter it before serving."""
    services = WebServices(
        engine=app.engine,
        store=app.store,
        models=app.models,
        keys=app.keys,
        toolbox=app.toolbox,
        recorder=app.recorder,
        gateway=gateway,
        notifications=notifications,
        backups=backups,
        timezone=app.config.budget.timezone,
        jobs=app.jobs,
        skills=app.skills,
        audit=app.audit,
    )
    return build_web(
        services,
        app.config.web,
        more=MemoryApi(app.memory.memory, app.memory.notebooks, app.store.records, app.clock).endpoints(),
    )
