"""everturn doctor"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import anyio.to_thread
import click
from rich.markup import escape
from rich.table import Table

from everturn import tools  # Fetcher loads an HTTP client, which doctor needs only for packages
from everturn.cli.common import console, home_option, open_config_secrets, printable, with_store
from everturn.cli.gateway import find_account_troubles
from everturn.config import Config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import EverturnError
from everturn.domain.secrets import SecretsPlace
from everturn.domain.store_values import Finding
from everturn.engine import read_failed_hooks
from everturn.store import Store
from everturn.tools import OwnTools, Profile, Sandbox
from everturn.tools.names import BUILT_IN_NAMES
from everturn.tools.profile_book import ProfileBook
from everturn.tools.sandbox.gate import Gate
from everturn.tools.terminal.environments import Environments, find_trouble

_DISK = "Disk: no quota; a command that leaves less than 1 GiB free is stopped, and its files stay."


@click.command()
@home_option
@click.option("--repair", is_flag=True, help="Rebuild the session list and the search index.")
def doctor(home: Path | None, repair: bool) -> None:
    """Check the database, the search index and the accounts."""
    found = with_store(home, lambda store, config: _examine(store, config, repair))
    sys.exit(1 if any(not finding.is_repaired for finding in found) else 0)


async def _examine(store: Store, config: Config, repair: bool) -> list[Finding]:
    out = console()
    facts = Table.grid(padding=(0, 2))
    facts.add_row("Data folder", escape(str(config.home)))
    facts.add_row("Store", store.kind)
    stats = await store.upkeep.stats()
    states = stats.pop("states")
    for name, value in stats.items():
        facts.add_row(name.capitalize(), f"{value:,}")
    facts.add_row("Turns by state", ", ".join(f"{count:,} {state}" for state, count in states.items()))
    facts.add_row("Free space", f"{shutil.disk_usage(config.home).free / 1e9:.1f} GB")
    facts.add_row("Sandbox", await _sandbox(config))
    for name, words in await _packages(config, store):
        facts.add_row(f"Packages of {escape(name)}", escape(words))
    facts.add_row("Secrets", await _secrets(store, config))
    out.print(facts)
    with out.status("Repairing" if repair else "Checking"):
        found = list(await (store.upkeep.repair() if repair else store.upkeep.check()))
        found += await find_account_troubles(store, config)
        found += await _find_tool_troubles(config)
        found += await _find_hook_troubles(store)
        found += await _find_package_troubles(config, store)
    if not found:
        out.print("\n[green]No problems found.[/green]")
    for finding in found:
        mark = "repaired" if finding.is_repaired else "can be repaired" if finding.is_repairable else "look"
        out.print(f"\n[yellow]{finding.what}[/yellow] ({mark})\n  {escape(printable(finding.detail))}")
    if any(f.is_repairable and not f.is_repaired for f in found):
        out.print("\nRun [bold]everturn doctor --repair[/bold].")
    return found


async def _secrets(store: Store, config: Config) -> str:
    try:
        async with open_config_secrets(store, config) as secrets:
            place = "secrets.toml" if secrets.state.place is SecretsPlace.FILE else "the database, encrypted"
            return escape(f"{len(secrets.names())} in {place}. {secrets.state.notice}".strip())
    except EverturnError as error:
        return escape(f"{error.message} {error.hint}".strip())


async def _find_tool_troubles(config: Config) -> list[Finding]:
    """What keeps own tools from being offered. Loading them runs their files, as the server does."""
    own = OwnTools(config.home / "tools", BUILT_IN_NAMES)
    await own.look()
    return [Finding(f"Own tools: {one.source}", one.problem) for one in own.troubles]


async def _profiles_with_packages(config: Config, store: Store) -> list[Profile]:
    found = (await ProfileBook(config.profiles, store.records).refresh()).profiles.values()
    return [profile for profile in found if profile.packages]


async def _packages(config: Config, store: Store) -> list[tuple[str, str]]:
    """What each profile names, and whether it is there."""
    rows = []
    # Neither is opened: nothing is installed here.
    sandbox, gate = Sandbox(config.home), Gate(tools.Fetcher().network)
    environments = Environments(config.home, sandbox, gate, SystemClock(), config.packages)
    for profile in await _profiles_with_packages(config, store):
        state = await environments.state(profile.packages)
        count = f"{len(state.files)} installed" if state.is_ready else "not installed; python asks first"
        rows.append((profile.name, f"{', '.join(profile.packages)}: {count}"))
    return rows


async def _find_package_troubles(config: Config, store: Store) -> list[Finding]:
    """What keeps packages from being installed."""
    if not await _profiles_with_packages(config, store):
        return []
    trouble = await anyio.to_thread.run_sync(find_trouble, config.packages)
    return [Finding("Packages of profiles", trouble)] if trouble else []


async def _find_hook_troubles(store: Store) -> list[Finding]:
    failed = (await read_failed_hooks(store.records)).values()
    return [
        Finding(f"Hook {one.name}", f"It failed after turn {one.turn_id}: {one.problem}") for one in failed
    ]


async def _sandbox(config: Config) -> str:
    sandbox = Sandbox(config.home)
    try:
        state = await sandbox.open()
    finally:
        sandbox.close()
    if state.works:
        gaps = ["What it does not cover:", *state.gaps] if state.gaps else []
        return " ".join(part for part in (f"{state.level}.", state.detail, state.hint, *gaps, _DISK) if part)
    return f"none. {state.detail} Every terminal and Python call asks before it runs. {state.hint}"
