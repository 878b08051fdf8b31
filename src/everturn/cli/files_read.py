"""everturn files list, show, get, diff, history"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import BinaryIO, Final

import anyio.to_thread
import click

from everturn.cli.common import OWNER, console, hint_at_sessions, home_option, printable, with_store
from everturn.config import Config
from everturn.domain.checkpoints import NOW, Checkpoint, parse_at
from everturn.domain.errors import Invalid, NotFound
from everturn.domain.sessions import Session
from everturn.domain.trees import Kind
from everturn.store import Store
from everturn.tools import WorkspaceFile
from everturn.tools.workspaces import Workspaces
from everturn.workspace import Archive, Compare, FolderView, Recorder, TreeView, Versions, View

MARKS: Final = {"added": "+", "changed": "~", "deleted": "-"}
_AT_HELP: Final = (
    "The version: now (the folder), start, trn_… (after that turn), before:trn_…, made:trn_… or chk_…."
)
at_option = click.option("--at", default=NOW, show_default=True, help=_AT_HELP)


class _Files:
    """The files of one session, from its folder on this machine or from the store."""

    def __init__(self, store: Store, config: Config, session_id: str) -> None:
        self.store = store
        self.versions = Versions(store.blobs)
        self.compare = Compare(self.versions)
        self._config = config
        self._session_id = session_id

    async def view(self, at: str) -> View:
        point = parse_at(at)
        if point is not None:
            tree = await self.store.checkpoints.tree_at(OWNER, self._session_id, point)
            return TreeView(self.versions, tree)
        return FolderView((await self._folder())[1], time.monotonic)

    async def tree(self, at: str) -> str:
        point = parse_at(at)
        if point is not None:
            return await self.store.checkpoints.tree_at(OWNER, self._session_id, point)
        session, folder = await self._folder()
        recorder = Recorder(self.store, self._config.home / "indexes", self._config.files)
        return (await recorder.look(session, folder)).tree

    async def _folder(self) -> tuple[Session, Path]:
        session = await self.store.sessions.get(OWNER, self._session_id)
        workspaces = Workspaces(self._config.home)
        find: Callable[[str], Path] = workspaces.of_session
        if session.project is not None:
            find = workspaces.of_project
        return session, await anyio.to_thread.run_sync(find, session.project or session.id)

    async def checkpoints(self) -> AsyncGenerator[Checkpoint, None]:
        before = None
        while page := await self.store.checkpoints.of_session(OWNER, self._session_id, before=before):
            for made in page:
                yield made
            before = page[-1].id


@click.command("list")
@click.argument("session")
@click.argument("path", default="")
@at_option
@home_option
def list_(session: str, path: str, at: str, home: Path | None) -> None:
    """List a folder of a session's workspace."""

    async def work(store: Store, config: Config) -> None:
        found = await (await _Files(store, config, session).view(at)).list(path)
        for file in found.files:
            click.echo(_as_line(file))
        if found.is_cut:
            click.echo("and more")

    with hint_at_sessions():
        with_store(home, work)


def _as_line(file: WorkspaceFile) -> str:
    if file.kind == "folder":
        return f"{'':>12}  {printable(file.name)}/"
    note = "" if file.kind == "file" else f"  ({file.reason or file.kind})"
    return f"{file.size:>12,}  {printable(file.name)}{note}"


@click.command()
@click.argument("session")
@click.argument("path")
@at_option
@home_option
def show(session: str, path: str, at: str, home: Path | None) -> None:
    """Print a file."""

    async def work(store: Store, config: Config) -> None:
        file = await (await _Files(store, config, session).view(at)).open(path)
        await _write(file.read(0, file.size), sys.stdout.buffer)

    with hint_at_sessions():
        with_store(home, work)


@click.command()
@click.argument("session")
@click.argument("path", default="")
@at_option
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write."
)
@home_option
def get(session: str, path: str, at: str, output: Path, home: Path | None) -> None:
    """Download a file; a folder, or everything without PATH, as a ZIP file.

    OUTPUT must not exist yet. It appears when it is complete.
    """

    if os.path.lexists(output):
        raise Invalid(f"{output} exists already.", hint="Name a file that does not exist.")

    async def work(store: Store, config: Config) -> int:
        files = _Files(store, config, session)
        return await _save(await _pieces(files, path, at), output)

    with hint_at_sessions():
        size = with_store(home, work)
    console(stderr=True).print(f"Wrote {output} ({size:,} bytes).", markup=False)


async def _pieces(files: _Files, path: str, at: str) -> AsyncGenerator[bytes, None]:
    is_now = parse_at(at) is None
    view = await files.view(at)
    if path:
        # A file of the folder is read from there: it may be too large for checkpoints.
        with suppress(Invalid):
            file = await view.open(path)
            return file.read(0, file.size)
    root = await files.versions.find(await files.tree(at), path)
    if root.entry.kind is Kind.LEFT_OUT:
        raise NotFound("stored version of", path)
    return Archive(files.versions, time.time(), view if is_now else None).pieces(root)


async def _save(pieces: AsyncGenerator[bytes, None], output: Path) -> int:
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        with partial.open("xb") as file:
            size = await _write(pieces, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(output)
    finally:
        partial.unlink(missing_ok=True)
    return size


async def _write(pieces: AsyncGenerator[bytes, None], target: BinaryIO) -> int:
    size = 0
    async with aclosing(pieces):
        async for piece in pieces:
            target.write(piece)
            size += len(piece)
    target.flush()
    return size


@click.command()
@click.argument("session")
@click.argument("path", default="")
@click.option("--from", "before", default="start", show_default=True, help=_AT_HELP)
@click.option("--to", "after", default=NOW, show_default=True, help=_AT_HELP)
@home_option
def diff(session: str, path: str, before: str, after: str, home: Path | None) -> None:
    """Show which files changed between two versions, or how PATH did."""

    async def work(store: Store, config: Config) -> None:
        files = _Files(store, config, session)
        old, new = await files.tree(before), await files.tree(after)
        if path:
            one = await files.compare.diff(old, new, path)
            note = "The file is not text.\n" if one.is_binary else "and more\n" if one.is_cut else ""
            click.echo("".join(f"{printable(line)}\n" for line in one.text.splitlines()) + note, nl=False)
            return
        found = await files.compare.compare(old, new)
        for change in found.changes:
            lines = "" if change.added is None else f"  +{change.added} -{change.removed}"
            click.echo(f"{MARKS[change.what]} {printable(change.path)}{lines}")
        if found.total > len(found.changes):
            click.echo(f"and {found.total - len(found.changes)} more")

    with hint_at_sessions():
        with_store(home, work)


@click.command()
@click.argument("session")
@click.argument("path")
@home_option
def history(session: str, path: str, home: Path | None) -> None:
    """List the versions of a file, newest first: checkpoint, time, what happened, size, turn.

    Use a checkpoint with --at of the other commands.
    """

    async def work(store: Store, config: Config) -> None:
        files = _Files(store, config, session)
        async with aclosing(files.checkpoints()) as made:
            found = await files.compare.history(made, path)
        for one in found.versions:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.created_at / 1000))
            click.echo(
                f"{one.checkpoint}  {when}  {one.what:<7}  {one.size:>12,}  {one.turn_id or '-'}  {one.cause}"
            )
        if not found.versions:
            click.echo("No version of this file is stored.")

    with hint_at_sessions():
        with_store(home, work)
