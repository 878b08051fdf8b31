"""Shared by all commands: the console, error messages with hints, the configured store and models."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import math
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

# The names of these two are loaded on first use: not every command needs them.
from everturn import models
from everturn import store as stores
from everturn.config import Config, read_config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import DiskFull, EverturnError, Invalid, InvalidId, NotFound
from everturn.domain.secrets import Secrets

if TYPE_CHECKING:  # not imported at run time: the server prints nothing with it and starts faster
    from rich.console import Console

    from everturn.store import Store

T = TypeVar("T")
_PR_SET_DUMPABLE = 4  # of linux/prctl.h
OWNER = "local"

home_option = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), help="Data folder (EVERTURN_HOME)."
)


def server_address(config: Config) -> tuple[str, str]:
    """The address of the page, and the host and port that the server listens on."""
    host, port = config.web.host, config.web.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    number = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4][0]
    shown = f"[{number}]" if family == socket.AF_INET6 else number
    return f"http://{shown}:{port}{config.web.root}/", f"{number}:{port}"


# Characters that move the cursor, change the terminal or reverse the reading order. Printed unescaped, they
# could make one question look like another.
_UNSHOWN = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def printable(text: str) -> str:
    """Escape text of a model, a tool or a server so that it is safe to print on a terminal."""
    return text.replace("\r\n", "\n").translate(_UNSHOWN)


def shown_exactly(text: str) -> str:
    """The same for a text that a person trusts: what would not be seen is written out, such as a character
    without a mark, or a gap that moves the rest off the screen."""
    from everturn.cli.call_text import exact

    return exact(text.replace("\r\n", "\n")).plain


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


@contextmanager
def progress(first: str, *, every_s: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Show on standard error how far something is: one line that changes, or lines where that is no terminal.

    ``every_s``: without a terminal, lines that come sooner after the last one are left out.
    """
    out = console(stderr=True)
    if out.is_terminal:
        with out.status(first) as status:
            yield lambda line: status.update(printable(line))
        return
    shown_at = -math.inf

    def show(line: str) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= every_s:
            shown_at = time.monotonic()
            click.echo(printable(line), err=True)

    yield show


def run(task: Coroutine[object, object, T]) -> T:
    return asyncio.run(task)


def keep_memory_private() -> None:
    """Hide our memory and environment, which contain keys, from other processes of this user.

    Linux only, and not from root. Starting another program ends the protection, so children receive no keys
    that they do not need.
    """
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the memory of this process could not be made private")


@contextmanager
def report_errors() -> Iterator[None]:
    """Print a known error as a sentence and a hint, and exit with code 1."""
    try:
        yield
    except (EverturnError, OSError, BaseExceptionGroup) as error:
        # Task groups wrap errors. If all of them are known, print them; else let the traceback show.
        known = [_known_error(leaf) for leaf in _leaves(error)]
        if None in known:
            raise
        for ours in known:
            if ours is not None:
                print_error(ours)
        sys.exit(1)


def _known_error(error: BaseException) -> EverturnError | None:
    """The error with a message for the user; None if it is unexpected."""
    if isinstance(error, EverturnError):
        return error
    if not isinstance(error, OSError):
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{error.filename or 'A file'} could not be written: the disk is full.")
    if error.filename is None:
        return None  # not about a file that the user named
    return EverturnError(f"{error.filename}: {error.strerror}.", hint="Check the path and its permissions.")


@contextmanager
def hint_at_sessions() -> Iterator[None]:
    """Add a hint to an error about an unknown session id."""
    try:
        yield
    except (InvalidId, NotFound) as error:
        error.hint = "'everturn sessions' lists the sessions with their ids."
        raise


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def print_error(error: EverturnError) -> None:
    from rich.text import Text

    out = console(stderr=True)
    # Printed as text, not as markup: a message may contain [brackets], such as those of config.toml.
    out.print(Text(printable(error.message), "red"), soft_wrap=True)
    if error.hint:
        out.print(Text(printable(error.hint), "dim"), soft_wrap=True)


@asynccontextmanager
async def open_config_secrets(store: Store, config: Config) -> AsyncIterator[Secrets]:
    """The secrets of an open store, for a command that ends soon."""
    ring = stores.read_key_ring(os.environ, config.secret_key_file)
    async with stores.open_secrets(store, config.home, ring, follows=False) as secrets:
        yield secrets


def make_registry(config: Config, secrets: Secrets) -> models.ModelRegistry:
    """The configured model registry, not opened yet."""
    return models.ModelRegistry(
        config.models,
        models.Keys(secrets, os.environ),
        SystemClock(),
        os.environ,
        models.make_shelf(config.home, os.environ),
        default=config.model,
    )


async def check_model(config: Config, name: str) -> None:
    """Check a model's name and key before anything starts. Raises ModelUnknown, ModelKeyMissing."""
    if not stores.is_postgres(config.database_url or ""):
        make_registry(config, stores.SecretsFile(config.home)).check(name)
        return
    async with open_config_store(config) as store, open_config_secrets(store, config) as secrets:
        make_registry(config, secrets).check(name)


def require_store(config: Config) -> None:
    """Raises Invalid if the data folder has no database."""
    if not stores.has_store(config.database_url, config.home):
        raise Invalid(
            f"There is no Everturn data in {config.home}.",
            hint="Name its folder with --home or EVERTURN_HOME; 'everturn serve' creates a new one.",
        )


@asynccontextmanager
async def open_config_store(config: Config) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            stores.open_store(config.database_url, data_dir=config.home, settings=config.store)
        )
        if config.files.url:
            secrets = await stack.enter_async_context(open_config_secrets(store, config))
            store.blobs.use_keys(lambda: stores.find_storage_keys(secrets, os.environ))
        yield store


def with_store(
    home: Path | None,
    work: Callable[[Store, Config], Coroutine[object, object, T]],
    *,
    makes_one: bool = False,
) -> T:
    """Run ``work`` with the configured store.

    A new store is created only with ``makes_one``, for commands that write. For any other command a missing
    store means that the folder is wrong.
    """

    async def inside() -> T:
        config = read_config(home)
        if not makes_one:
            require_store(config)
        async with open_config_store(config) as store:
            return await work(store, config)

    return run(inside())
