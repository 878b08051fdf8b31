"""everturn backup, everturn restore"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from functools import partial
from pathlib import Path

import click

from everturn.cli.frame import console, home_option, run, with_store
from everturn.config import FILE, Config, read_config
from everturn.domain.errors import EverturnError, Invalid, Stopped
from everturn.store import Store, copy_tree, open_store, restore_database
from everturn.store.disk import Disk, sync_tree

_FOLDERS = ("files", "memory", "workspaces")  # of the data folder, in a backup
_LISTED_MAX = 20


@click.command()
@click.argument("target", type=click.Path(path_type=Path, file_okay=False), required=False)
@home_option
def backup(target: Path | None, home: Path | None) -> None:
    """Copy what you would miss, while the server may go on; the database is verified by opening it.

    In it: sessions and all they hold, attachments, memory, the sessions' workspaces (links as links, never
    followed), config.toml. Not in it: keys (secrets.toml), models' weights, folders of yours in which a
    session works. config.toml is copied as it is, with a password or database_url in it: keep the backup as
    you keep that.

    TARGET is a folder that does not exist yet; default: backups/<time> in the data folder. It is yours alone
    to read (0700).
    """
    made, left_out = with_store(home, lambda store, config: _backup(store, config, target))
    out = console()
    out.print(f"Backed up to [bold]{made}[/bold] ({_size(made) / 1e6:.1f} MB), verified.", soft_wrap=True)
    out.print(
        "In it: sessions, attachments, memory, workspaces, config.toml. Not in it: keys, weights of models.",
        soft_wrap=True,
    )
    if (made / FILE).exists():
        out.print(
            f"{FILE} is copied as it is, with a password or database_url if it has one.", soft_wrap=True
        )
    _say_left_out(left_out)


async def _backup(store: Store, config: Config, target: Path | None) -> tuple[Path, list[str]]:
    folder = target or config.home / "backups" / time.strftime("%Y-%m-%d-%H%M%S")
    if folder.exists():
        raise Invalid(f"{folder} exists already.", hint="Name a folder that does not exist.")
    for name in _FOLDERS:
        if folder.resolve().is_relative_to((config.home / name).resolve()):
            raise Invalid(
                f"{folder} lies in {config.home / name}, which is copied.", hint="Name another folder."
            )
    if target is None:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
    with console().status("Copying"):
        try:
            await store.upkeep.backup(folder)
            return folder, await asyncio.to_thread(_copy_rest, config.home, folder)
        except FileExistsError:
            raise  # somebody else has made it meanwhile
        except (EverturnError, OSError) as error:
            # Half a backup would be taken for a whole one.
            shutil.rmtree(folder, ignore_errors=True)
            raise Stopped(
                f"The backup was not made, and nothing of it is left: {_why(error)}",
                hint="Free space, or name a folder elsewhere.",
            ) from error


def _copy_rest(home: Path, folder: Path) -> list[str]:
    """What lies beside the database and its files. Keys are left out: a backup travels."""
    left_out: list[str] = []
    if (home / FILE).exists():
        shutil.copy2(home / FILE, folder / FILE)
    if (home / "memory").is_dir():
        # Links are followed here: only its owner writes there, and may keep notes elsewhere.
        shutil.copytree(home / "memory", folder / "memory", ignore=partial(_unreadable, left_out))
    if (home / "workspaces").is_dir():
        left_out += copy_tree(home / "workspaces", folder / "workspaces")
    sync_tree(Disk(), folder)
    return left_out


def _unreadable(left_out: list[str], folder: str, names: list[str]) -> set[str]:
    """Names in a folder that are neither a file nor a folder, nor a link to one."""
    found = {name for name in names if not ((path := Path(folder) / name).is_file() or path.is_dir())}
    left_out += [f"{Path(folder).name}/{name}: neither a file nor a folder" for name in sorted(found)]
    return found


def _size(folder: Path) -> int:
    return sum(
        (Path(parent) / name).lstat().st_size for parent, _, names in os.walk(folder) for name in names
    )


def _why(error: EverturnError | OSError) -> str:
    return error.message if isinstance(error, EverturnError) else f"{error.strerror or error}."


def _say_left_out(left_out: list[str]) -> None:
    if not left_out:
        return
    click.echo(f"{len(left_out)} left out:", err=True)
    for line in left_out[:_LISTED_MAX]:
        click.echo(f"  {line}", err=True)
    if len(left_out) > _LISTED_MAX:
        click.echo(f"  and {len(left_out) - _LISTED_MAX:,} more", err=True)


@click.command()
@click.argument("source", type=click.Path(path_type=Path, file_okay=False, exists=True))
@home_option
def restore(source: Path, home: Path | None) -> None:
    """Put a backup into an empty data folder (and an empty PostgreSQL), and check it there.

    Keys are not in a backup: set them again in the environment, or store them in the settings. The data
    folder is yours alone to read (0700).
    """
    config = read_config(home)
    target = config.home
    if target.exists() and any(target.iterdir()):
        raise Invalid(
            f"{target} is not empty; nothing was touched.", hint="Move it away, or name another --home."
        )
    found, left_out = run(_restore(source, config))
    console().print(f"Restored into [bold]{target}[/bold]; {found} finding(s).", soft_wrap=True)
    console().print("Keys of models are not in a backup; set them again.")
    _say_left_out(left_out)


async def _restore(source: Path, config: Config) -> tuple[int, list[str]]:
    # The database first: where backup and address do not fit, nothing has been touched yet.
    await restore_database(config.database_url, source)
    # A database with an address of its own is where that says, and not in the data folder.
    leaves = frozenset({"postgresql", Path(config.database_url or "").name})
    try:
        left_out = await asyncio.to_thread(copy_tree, source, config.home, leaves=leaves)
    except OSError as error:
        raise Stopped(
            f"The backup was not restored whole: {_why(error)}",
            hint=f"Free space, empty {config.home}, then restore it again.",
        ) from error
    config.home.chmod(0o700)  # it may have been there before
    async with open_store(config.database_url, data_dir=config.home) as store:
        return len(await store.upkeep.check()), left_out
