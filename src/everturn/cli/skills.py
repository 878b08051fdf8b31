"""everturn skills"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from everturn.cli.common import OWNER, home_option, printable, shown_exactly, with_store
from everturn.config import Config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import NotFound
from everturn.domain.ids import Ids
from everturn.domain.probe import Probe
from everturn.domain.runtime import Runtime
from everturn.skills import (
    BuiltSkills,
    RawFile,
    Skill,
    SkillBook,
    SkillScope,
    build_skills,
    read_archive,
    read_folder,
)
from everturn.store import Store

T = TypeVar("T")
_name = click.argument("name")


@click.group(invoke_without_command=True)
@click.option("--json", "is_json", is_flag=True, help="Print JSON, one skill per line.")
@home_option
@click.pass_context
def skills(ctx: click.Context, is_json: bool, home: Path | None) -> None:
    """List skills: their state, name and description. The agent uses only those that are trusted."""
    if ctx.invoked_subcommand is None:
        _print_list(home, is_json=is_json)


@skills.command("list")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, one skill per line.")
@home_option
def list_(is_json: bool, home: Path | None) -> None:
    """List skills: their state, name and description."""
    _print_list(home, is_json=is_json)


def _print_list(home: Path | None, *, is_json: bool) -> None:
    found = _with_book(home, lambda book: _list(book))
    for skill in found:
        click.echo(_as_json(skill) if is_json else _as_line(skill))
    if not found and not is_json:
        click.echo("There are no skills. 'everturn skills import FOLDER' adds one.")


@skills.command()
@_name
@home_option
def show(name: str, home: Path | None) -> None:
    """Print every file of a skill, and what has changed since it was trusted. NAME: its name or id."""

    async def work(book: SkillBook) -> None:
        skill = await _find(book, name)
        click.echo(_as_line(skill))
        for line in (f"digest  {skill.found.digest}" if skill.found else "", skill.problem):
            if line:
                click.echo(shown_exactly(line))
        files = {} if skill.found is None else await book.load(skill.found)
        if skill.is_changed and skill.trusted is not None:
            _print_changes(await book.load(skill.trusted), files)
        for path, file in files.items():
            _print_file(path, file)

    _with_book(home, work)


@skills.command()
@_name
@click.option("--digest", default="", help="Trust only this content, as 'show' prints it.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask; needs --digest.")
@home_option
def trust(name: str, digest: str, is_sure: bool, home: Path | None) -> None:
    """Let the agent use a skill as it is now. Prints all of it and asks."""
    if is_sure and not digest:
        raise click.UsageError("--yes needs --digest: it says which content you have read.")

    async def work(book: SkillBook) -> None:
        skill = await _find(book, name)
        if skill.found is None:
            raise click.ClickException(f"{skill.name} is not a skill: {skill.problem}")
        if not is_sure:
            files = await book.load(skill.found)
            if skill.trusted is not None:
                _print_changes(await book.load(skill.trusted), files)
            for path, file in files.items():
                _print_file(path, file)
            click.confirm(f"Let the agent use {skill.name}?", abort=True)
        await book.trust(OWNER, skill.id, digest or skill.found.digest)
        click.echo(f"{skill.name} is trusted.")

    _with_book(home, work)


@skills.command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--shared", is_flag=True, help="For all users of this server, guests included.")
@home_option
def import_(source: Path, shared: bool, home: Path | None) -> None:
    """Import a folder with a SKILL.md, or a ZIP file with such folders. The agent uses it after 'trust'."""
    source = source.resolve()
    contents = [read_folder(source)] if source.is_dir() else read_archive(source, source.name)
    scope = SkillScope.SHARED if shared else SkillScope.USER
    made = _with_book(home, lambda book: book.add(OWNER, contents, scope, "import"), makes_one=True)
    for skill in made:
        click.echo(_as_line(skill))
    click.echo("Read them with 'everturn skills show NAME', then use 'everturn skills trust NAME'.")


@skills.command()
@_name
@click.option("--off/--on", "is_off", default=True, help="Switch it off, or on again.")
@home_option
def switch(name: str, is_off: bool, home: Path | None) -> None:
    """Switch a skill off or on."""

    async def work(book: SkillBook) -> None:
        skill = await book.switch(OWNER, (await _find(book, name)).id, is_on=not is_off)
        click.echo(_as_line(skill))

    _with_book(home, work)


@skills.command()
@_name
@home_option
def remove(name: str, home: Path | None) -> None:
    """Remove a skill. A folder of the data folder or of a project stays as it is."""

    async def work(book: SkillBook) -> None:
        skill = await _find(book, name)
        await book.remove(OWNER, skill.id)
        click.echo(f"{skill.id} was removed.")

    _with_book(home, work)


def _with_book(
    home: Path | None, work: Callable[[SkillBook], Coroutine[object, object, T]], *, makes_one: bool = False
) -> T:
    async def inside(store: Store, config: Config) -> T:
        return await work(_build(store, config).book)

    return with_store(home, inside, makes_one=makes_one)


def _build(store: Store, config: Config) -> BuiltSkills:
    clock = SystemClock()
    return build_skills(store, config.home, Runtime(clock, Ids(clock), Probe()), owner=OWNER)


async def _list(book: SkillBook) -> list[Skill]:
    return list(await book.list(OWNER))


async def _find(book: SkillBook, name: str) -> Skill:
    """By id, or by a name that only one skill has."""
    found = [one for one in await book.list(OWNER) if name in (one.id, one.name)]
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise click.ClickException(f"Several skills are called {name}: {ids}. Give the id.")
    if not found:
        raise NotFound("skill", name)
    return found[0]


def _print_changes(before: Mapping[str, RawFile], after: Mapping[str, RawFile]) -> None:
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        was = old.content.decode("utf-8", "replace").splitlines() if old else []
        now = new.content.decode("utf-8", "replace").splitlines() if new else []
        for line in difflib.unified_diff(was, now, f"trusted/{path}", f"now/{path}", lineterm=""):
            click.echo(shown_exactly(line))


def _print_file(path: str, file: RawFile) -> None:
    click.echo(f"\n--- {printable(path)}{' (can be run)' if file.is_executable else ''}")
    try:
        click.echo(shown_exactly(file.content.decode()))
    except UnicodeDecodeError:
        click.echo(f"[not text: {len(file.content):,} bytes]")


def _state(skill: Skill) -> str:
    if skill.problem:
        return "broken"
    if skill.is_changed:
        return "changed" if skill.trusted else "new"
    state = "trusted" if skill.trusted else "declined"
    return state if skill.is_on else "off"


def _as_line(skill: Skill) -> str:
    shown = skill.found or skill.trusted
    words = skill.problem or (shown.description if shown else "")
    return printable(f"{_state(skill):<9} {skill.id:<32} {words}")


def _as_json(skill: Skill) -> bytes:
    shown = skill.found or skill.trusted
    used = (
        None if skill.used is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(skill.used.at / 1000))
    )
    return msgspec.json.encode(
        {
            "id": skill.id,
            "name": skill.name,
            "state": _state(skill),
            "is_on": skill.is_on,
            "description": shown.description if shown else "",
            "digest": shown.digest if shown else "",
            "trusted_digest": skill.trusted.digest if skill.trusted else "",
            "problem": skill.problem,
            "used_at": used,
        }
    )
