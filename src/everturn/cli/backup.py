"""everturn backup, everturn restore"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from everturn.cli.frame import console, home_option, run, with_store
from everturn.config import Config, read_config
from everturn.domain.errors import Invalid
from everturn.store import Store, open_store, restore_database

# What a backup holds besides the database and its files. Keys are left out: a backup travels.
_KEPT = ("config.toml", "memory")


@click.command()
@click.argument("target", type=click.Path(path_type=Path, file_okay=False), required=False)
@home_option
def backup(target: Path | None, home: Path | None) -> None:
    """Copy everything, consistently, while the server may go on; verified by opening it.

    TARGET is a folder that does not exist yet; default: backups/<time> in the data folder.
    """
    made = with_store(home, lambda store, config: _backup(store, config, target))
    size = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
    console().print(f"Backed up to [bold]{made}[/bold] ({size / 1e6:.1f} MB), verified.")


async def _backup(store: Store, config: Config, target: Path | None) -> Path:
    folder = target or config.home / "backups" / time.strftime("%Y-%m-%d-%H%M%S")
    if folder.exists():
        raise Invalid(f"{folder} exists already.", hint="Name a folder that does not exist.")
    with console().status("Copying"):
        await store.upkeep.backup(folder)
        for name in _KEPT:
            source = config.home / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            elif source.exists():
                shutil.copy2(source, folder / name)
    return folder


@click.command()
@click.argument("source", type=click.Path(path_type=Path, file_okay=False, exists=True))
@home_option
def restore(source: Path, home: Path | None) -> None:
    """Put a backup into an empty data folder (and an empty PostgreSQL), and check it there."""
    config = read_config(home)
    target = config.home
    if target.exists() and any(target.iterdir()):
        raise Invalid(
            f"{target} is not empty; nothing was touched.", hint="Move it away, or name another --home."
        )
    found = run(_restore(source, config))
    console().print(f"Restored into [bold]{target}[/bold]; {found} finding(s).")


async def _restore(source: Path, config: Config) -> int:
    # The database first: where backup and address do not fit, nothing has been touched yet.
    await restore_database(config.database_url, source)
    shutil.copytree(source, config.home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("postgresql"))
    async with open_store(config.database_url, data_dir=config.home) as store:
        return len(await store.upkeep.check())
