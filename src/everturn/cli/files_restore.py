"""everturn files restore"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio.to_thread
import click

from everturn.cli.common import OWNER, hint_at_sessions, home_option, printable, with_store
from everturn.cli.files_read import MARKS
from everturn.config import Config
from everturn.domain.checkpoints import parse_at
from everturn.domain.errors import Invalid, NothingToDo
from everturn.domain.sessions import Session
from everturn.domain.working_copies import FileChoices, FilesChoice, PlanNeeded, RestoredFiles
from everturn.engine.moves import Moves
from everturn.store import Store
from everturn.tools.workspaces import Workspaces
from everturn.workspace import Compare, Recorder, Restorer, ShownPlan, Versions, to_path

_DIFFS_MAX: Final = 20  # files whose lines are shown


@click.command()
@click.argument("session")
@click.argument("paths", nargs=-1)
@click.option(
    "--at",
    required=True,
    help="The version: start, trn_… (after that turn), before:trn_…, made:trn_… or chk_….",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@home_option
def restore(session: str, paths: tuple[str, ...], at: str, is_sure: bool, home: Path | None) -> None:
    """Restore the files of a session, or some PATHS of them, as they were.

    Shows what would change and asks. The conversation stays where it is. What is in the folder now is
    stored first: it can be restored the same way. Works in project folders, too.
    """

    async def work(store: Store, config: Config) -> RestoredFiles | None:
        return await _restore(store, config, session, at, paths, is_sure)

    with hint_at_sessions():
        done = with_store(home, work)
    if done is None:
        click.echo("Nothing was changed.")
        return
    click.echo(f"Restored {done.changes_total} {'file' if done.changes_total == 1 else 'files'}.")
    for kept in done.kept:
        click.echo(f"Left as it was: {printable(kept.path)}: {kept.why}", err=True)


async def _restore(
    store: Store, config: Config, session_id: str, at: str, paths: tuple[str, ...], is_sure: bool
) -> RestoredFiles | None:
    point = parse_at(at)
    if point is None:
        raise Invalid("The files of now need no restore.", hint="Name a turn or a checkpoint with --at.")
    moves = _moves(store, config)
    tree = await store.checkpoints.tree_at(OWNER, session_id, point)
    places = tuple(to_path(path) for path in paths)
    shown = await moves.plan_restore(OWNER, session_id, tree, places)
    if shown is None or shown.plan.present == shown.plan.wanted:
        raise NothingToDo("The files are already as they were then.", hint="See 'everturn files history'.")
    await _print_plan(Compare(Versions(store.blobs)), shown)
    if not is_sure and not await anyio.to_thread.run_sync(lambda: click.confirm("Restore?")):
        return None
    try:
        return await moves.restore(OWNER, session_id, shown, FileChoices(FilesChoice.RESTORE))
    except PlanNeeded:
        raise Invalid(
            "The files were recorded anew meanwhile. Nothing was restored.", hint="Run it again."
        ) from None


def _moves(store: Store, config: Config) -> Moves:
    workspaces = Workspaces(config.home)

    async def find_folder(session: Session) -> Path:
        if session.project is None:
            return await anyio.to_thread.run_sync(workspaces.of_session, session.id)
        return await anyio.to_thread.run_sync(workspaces.of_project, session.project)

    recorder = Recorder(store, config.home / "indexes", config.files)
    return Moves(store, Restorer(store, recorder, find_folder))


async def _print_plan(compare: Compare, shown: ShownPlan) -> None:
    present, wanted = shown.plan.present, shown.plan.wanted
    found = await compare.compare(present, wanted)
    theirs = {conflict.path for conflict in shown.conflicts}
    for number, change in enumerate(found.changes):
        note = "  (changed since the last step)" if change.path in theirs else ""
        click.echo(f"{MARKS[change.what]} {printable(change.path)}{note}")
        if number < _DIFFS_MAX:
            one = await compare.diff(present, wanted, change.path)
            click.echo(printable("".join(f"    {line}\n" for line in one.text.splitlines())), nl=False)
    if found.total > len(found.changes):
        click.echo(f"and {found.total - len(found.changes)} more")
