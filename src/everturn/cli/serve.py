"""everturn serve"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import click

from everturn.app import (
    open_app,
    open_backups,
    open_gateway,
    open_knowledge,
    open_notifications,
    open_schedules,
    open_web,
)
from everturn.backups.unfinished import refuse_leftover
from everturn.cli.common import check_model, home_option, run
from everturn.config import Config, Flags, read_config
from everturn.domain.model_errors import ModelKeyMissing
from everturn.domain.secrets import SecretsState
from everturn.engine import Engine
from everturn.tools import SandboxState
from everturn.web import configure_logs
from everturn.web import serve as serve_web
from everturn.web.heap import collect_rarely, trim_heap_regularly

_log = logging.getLogger("everturn.server")


@click.command()
@home_option
@click.option("--host", help="Address to listen on. Any but loopback needs a password.")
@click.option("--port", type=int, help="Port; 0 picks a free one.")
@click.option("--model", help="Default model (provider:name).")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="What to log.",
)
@click.option("--open", "opens_browser", is_flag=True, help="Open the page in a browser.")
def serve(
    home: Path | None,
    host: str | None,
    port: int | None,
    model: str | None,
    log_level: str,
    opens_browser: bool,
) -> None:
    """Run the server and the page. Press Ctrl-C to stop; press it again to stop at once."""
    configure_logs(level=log_level)
    flags = Flags(host=host, port=port, model=model, opens_browser=opens_browser)
    config = read_config(home, flags=flags)
    refuse_leftover(config.home)
    run(_serve(config))


async def check_default(config: Config) -> None:
    """Refuse an unknown model; warn about a missing key, which the page can set. Raises ModelUnknown."""
    if config.model is None:
        return
    try:
        await check_model(config, config.model)
    except ModelKeyMissing as error:
        _log.warning("%s answers nothing yet: %s %s", config.model, error.message, error.hint)


def warn_of_secrets(state: SecretsState) -> None:
    """Log that secrets are not shared, or cannot be read, and what to do."""
    if state.notice:
        _log.warning("%s", state.notice)


async def _serve(config: Config) -> None:
    await check_default(config)
    async with (
        open_app(config) as app,
        open_gateway(app) as gateway,
        open_schedules(app) as schedules,
        open_knowledge(app),
        open_notifications(app) as notifications,
        open_backups(app) as backups,
        open_web(app, gateway, notifications, backups) as web,
        AsyncExitStack() as stack,
    ):
        warn_of_secrets(app.keys.state)
        warn_of_readers(config.home)
        report_sandbox(app.toolbox.sandbox_state())
        if app.store.kind == "sqlite":
            stack.enter_context(share_server_lock(config.home))
        collect_rarely()
        await stack.enter_async_context(trim_heap_regularly(app.clock))
        drains = partial(_stop, app.engine, (backups, schedules, gateway, notifications))
        await serve_web(web, config.web, drain=drains, on_ready=_say)


class _Stops(Protocol):
    async def stop(self) -> None: ...


async def _stop(engine: Engine, services: Sequence[_Stops], grace_s: float) -> None:
    """What starts work of its own first: what it starts would find no engine."""
    for service in services:
        await service.stop()
    await drain(engine, grace_s)


async def drain(engine: Engine, grace_s: float) -> None:
    """Let turns end, and log what the shutdown waits for."""
    running = engine.status()["running"]
    if running:
        _log.info("%d running turn%s: %g seconds to end", running, "" if running == 1 else "s", grace_s)
    await engine.stop(grace_s)


def report_sandbox(state: SandboxState) -> None:
    """Log how well commands are confined, and what can be done if they are not."""
    if not state.works:
        _log.warning(
            "commands run without a sandbox, so each asks before it runs. %s %s", state.detail, state.hint
        )
    elif state.gaps:
        _log.warning(
            "commands run in a weaker sandbox: level %s. %s %s", state.level, state.detail, state.hint
        )
        _log.warning("what it does not cover: %s", " ".join(state.gaps))
    elif state.level != "full":
        _log.warning("the sandbox is weaker here than it could be: level %s. %s", state.level, state.detail)
    else:
        _log.info("commands run in a sandbox: level %s. %s", state.level, state.detail)


def warn_of_readers(home: Path) -> None:
    """Warn if other users can read the data folder, which may have existed before."""
    if home.stat().st_mode & 0o077:
        _log.warning(
            "other users of this machine can read the data folder, with attachments and memory in it: "
            "'chmod 700 %s' keeps it yours",
            home,
        )


@contextmanager
def share_server_lock(home: Path) -> Iterator[None]:
    """Log if another server has the data folder open, and what that means; it is allowed.

    SQLite only: with PostgreSQL several servers are the normal case.
    """
    descriptor = os.open(home / "server.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            # Every server shares the lock: a server that gets it exclusively is alone.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning(
                "another server has the data folder %s open. That is safe: both show the same sessions, each "
                "turn runs in one of them, and if one stops the other carries on with its turns. If you did "
                "not mean it, stop one of them",
                home,
            )
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def notify_manager(state: str) -> None:
    """Tell systemd, where it waits for that (``Type=notify``)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto(state.encode(), "\0" + place[1:] if place[0] == "@" else place)


def _say(address: str) -> None:
    notify_manager("READY=1")
    click.echo(f"Everturn is ready: {click.style(address, bold=True)}  (press Ctrl-C to stop)")
