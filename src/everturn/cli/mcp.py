"""everturn mcp"""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click
import msgspec
from rich.markup import escape
from rich.table import Table

from everturn.cli.audit_note import note_change
from everturn.cli.common import (
    OWNER,
    console,
    home_option,
    open_config_secrets,
    printable,
    shown_exactly,
    with_store,
)
from everturn.config import Config
from everturn.domain.asks import SignInAnswer, open_sign_ins
from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid, NotFound, WrongState
from everturn.domain.json_types import JsonObject
from everturn.models import Keys
from everturn.store import Store
from everturn.tools import EverturnToolbox, McpServer, ServerState, ToolServices
from everturn.tools.mcp.profile_servers import Mode
from everturn.tools.mcp.server_book import make_server, place_of

_SIGN_IN_S = 600
_DONE = (
    b"<!doctype html><html lang='en'><title>Everturn</title><p>Back to the terminal. You can close this tab."
)
Work = Callable[[EverturnToolbox, Store, Config], Awaitable[None]]


@click.group()
def mcp() -> None:
    """Set up MCP servers: tools from other programs, local or over HTTP."""


def _with_toolbox(home: Path | None, work: Work, *, makes_one: bool = False) -> None:
    async def inside(store: Store, config: Config) -> None:
        async with open_config_secrets(store, config) as secrets:
            keys = Keys(secrets, os.environ)

            def find_key(name: str) -> str | None:
                found = keys.find(name, (name,))
                return found.secret.reveal() if found else None

            services = ToolServices(
                store.records, store.search, SystemClock(), secret=find_key, secrets=secrets
            )
            async with EverturnToolbox(config.home, services, config.profiles) as toolbox:
                await work(toolbox, store, config)

    with_store(home, inside, makes_one=makes_one)


@mcp.command("list")
@home_option
def list_servers(home: Path | None) -> None:
    """Show the servers, and what is known of their tools. Starts none."""

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        table = Table("Server", "Kind", "From", "Tools", "New", "Place", box=None, header_style="bold")
        states = await toolbox.servers(OWNER)
        for state in states:
            server = await toolbox.mcp.book.get(state.name)
            table.add_row(
                state.name if server.enabled else f"{state.name} (off)",
                _kind_of(server, state),
                "config.toml" if toolbox.mcp.book.is_configured(state.name) else "page",
                str(sum(tool.mode != "off" for tool in state.modes)),
                str(sum(tool.is_new for tool in state.modes)),
                escape(printable(place_of(server))),
            )
        console().print(table if states else "There are no MCP servers. 'everturn mcp add' makes one.")

    _with_toolbox(home, work)


def _kind_of(server: McpServer, state: ServerState) -> str:
    if not server.is_remote:
        return "stdio"
    return "http, signed in" if state.signed_in else "http"


@mcp.command()
@click.argument("name")
@click.argument("place", nargs=-1, required=True)
@click.option("--profile", "profiles", multiple=True, help="Profile that uses it. Repeatable.")
@click.option("--local", is_flag=True, help="The address is on your own network.")
@click.option("--network", is_flag=True, help="The program may reach the web.")
@click.option("--read", multiple=True, help="Folder that the program may read. Repeatable.")
@click.option("--write", multiple=True, help="Folder that the program may write. Repeatable.")
@click.option("--key", "keys", multiple=True, metavar="NAME", help="Key to ask for; 'bearer' for an address.")
@home_option
def add(
    name: str,
    place: tuple[str, ...],
    profiles: tuple[str, ...],
    local: bool,
    network: bool,
    read: tuple[str, ...],
    write: tuple[str, ...],
    keys: tuple[str, ...],
    home: Path | None,
) -> None:
    """Add a server. PLACE: its address, or a program with its arguments, after -- if they have options."""
    table: JsonObject = {"name": name, "profiles": list(profiles or ("default",))}
    if place[0].startswith(("http://", "https://")):
        table |= {"url": place[0], "local": local}
    else:
        table |= {"command": place[0], "args": list(place[1:]), "network": network}
        table |= {"read": list(read), "write": list(write)}

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        server = make_server(table)
        for profile in server.profiles:
            await toolbox.profile_book.get(profile)
        await toolbox.mcp.book.check_new(server)
        given: dict[str, str | None] = {key: await asyncio.to_thread(_read_key, key) for key in keys}
        await toolbox.mcp.sign_ins.forget(name)
        await toolbox.mcp.sign_ins.keep_keys(name, given)
        await toolbox.mcp.book.add(server)
        await note_change(config, "mcp.added", name)
        console().print(f"Added {name}. Next: everturn mcp test {name}")

    _with_toolbox(home, work, makes_one=True)


@mcp.command()
@click.argument("name")
@click.argument("place", nargs=-1)
@click.option("--profile", "profiles", multiple=True, help="Profile that uses it. Repeatable.")
@click.option("--no-profile", is_flag=True, help="No profile uses it.")
@click.option("--local/--not-local", default=None, help="Whether the address is on your own network.")
@click.option("--network/--no-network", default=None, help="Whether the program may reach the web.")
@click.option("--read", multiple=True, help="Folder that the program may read. Repeatable.")
@click.option("--write", multiple=True, help="Folder that the program may write. Repeatable.")
@click.option("--timeout", "timeout_s", type=float, help="Time limit of a call, in seconds.")
@click.option("--key", "keys", multiple=True, metavar="NAME", help="Key to ask for; 'bearer' for an address.")
@home_option
def change(
    name: str,
    place: tuple[str, ...],
    profiles: tuple[str, ...],
    no_profile: bool,
    local: bool | None,
    network: bool | None,
    read: tuple[str, ...],
    write: tuple[str, ...],
    timeout_s: float | None,
    keys: tuple[str, ...],
    home: Path | None,
) -> None:
    """Change a server. What is not given stays; with another PLACE, its keys and its sign-in are deleted."""
    given: JsonObject = {"local": local, "network": network, "timeout_s": timeout_s}
    given |= {"read": list(read) or None, "write": list(write) or None}
    given["profiles"] = [] if no_profile else list(profiles) or None
    is_remote = bool(place) and place[0].startswith(("http://", "https://"))
    if is_remote:
        given |= {"url": place[0]}
    elif place:
        given |= {"command": place[0], "args": list(place[1:])}

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        book, sign_ins = toolbox.mcp.book, toolbox.mcp.sign_ins
        before = await book.get(name)
        book.refuse_configured(name)
        kept = {field: value for field, value in given.items() if value is not None}
        row = msgspec.to_builtins(before)
        if place and is_remote != before.is_remote:  # the settings of the other kind mean nothing now
            row = {field: row[field] for field in ("name", "enabled", "profiles", "timeout_s")}
        server = make_server({**row, **kept})
        for profile in server.profiles:
            await toolbox.profile_book.get(profile)
        read_keys: dict[str, str | None] = {key: await asyncio.to_thread(_read_key, key) for key in keys}
        if place_of(server) != place_of(before):
            await sign_ins.forget(name)  # what was given for one place is not sent to another
        await book.change(server)
        await sign_ins.keep_keys(name, read_keys)
        await note_change(config, "mcp.changed", f"{name} ({place_of(server)})")
        console().print(f"Changed {name}. Next: everturn mcp test {name}")

    _with_toolbox(home, work)


@mcp.command()
@click.argument("name")
@click.option("--off/--on", "is_off", default=True, help="Switch it off, or on again.")
@home_option
def switch(name: str, is_off: bool, home: Path | None) -> None:
    """Switch a server off or on."""

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        server = await toolbox.mcp.book.get(name)
        await toolbox.mcp.book.change(msgspec.structs.replace(server, enabled=not is_off))
        await note_change(config, "mcp.changed", f"{name} ({'off' if is_off else 'on'})")
        console().print(f"{name} is {'off' if is_off else 'on'}.")

    _with_toolbox(home, work)


@mcp.command()
@click.argument("name")
@click.argument("tool")
@click.argument("mode", type=click.Choice(["allow", "ask", "off"]))
@home_option
def mode(name: str, tool: str, mode: Mode, home: Path | None) -> None:
    """Set whether the agent may call a trusted tool: allow, ask or off."""

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        state = await toolbox.mcp.state(OWNER, await toolbox.mcp.book.get(name))
        known = next((one for one in state.modes if one.name == tool), None)
        if known is None:
            raise NotFound("tool", f"{name}: {tool}")
        if known.is_new and mode != "off":
            raise WrongState(
                f"You have not trusted {tool} of {name} yet. Nothing was changed.",
                hint=f"Read it first: everturn mcp trust {name}",
            )
        await toolbox.mcp.set_mode(OWNER, name, tool, known.digest, mode)
        await note_change(config, "mcp.trusted", f"{name} {tool}: {mode}")
        console().print(f"{tool} of {name}: {mode}.")

    _with_toolbox(home, work)


def _read_key(name: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    return getpass.getpass(f"{name}: ").strip()


@mcp.command()
@click.argument("name")
@home_option
def remove(name: str, home: Path | None) -> None:
    """Remove a server with its keys and its sign-in."""

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        await toolbox.mcp.book.remove(name)
        await toolbox.mcp.sign_ins.forget(name)
        await note_change(config, "mcp.removed", name)
        console().print(f"Removed {name}.")

    _with_toolbox(home, work)


@mcp.command()
@click.argument("name")
@home_option
def test(name: str, home: Path | None) -> None:
    """Start a server and show what it offers."""

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        await _check_own(toolbox, name)
        state = await toolbox.mcp.test(OWNER, name)
        if state.state == "sign_in":
            raise WrongState(state.detail, hint=f"everturn mcp login {name}")
        if state.state == "failed":
            raise Invalid(state.detail, hint="Correct its settings, then test it again.")
        for tool in state.modes:
            mode = "new" if tool.is_new else tool.mode
            line = f"{tool.name:30} {mode:6} {tool.description.partition(chr(10))[0][:100]}"
            console().print(escape(printable(line)), soft_wrap=True)
        also = [f"{len(state.prompts)} prompts"] if state.prompts else []
        also += ["resources"] if state.has_resources else []
        if also:
            console().print(f"Also {' and '.join(also)}.")
        if any(tool.is_new for tool in state.modes):
            console().print(f"Next: everturn mcp trust {name}")

    _with_toolbox(home, work)


async def _check_own(toolbox: EverturnToolbox, name: str) -> None:
    """A server with host_network is not started here, where it is not known whether there is sign-in."""
    if (await toolbox.mcp.book.get(name)).host_network:
        raise Invalid(f"{name} has host_network.", hint="Test it on the page.")


@mcp.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Trust what is printed without asking.")
@home_option
def trust(name: str, yes: bool, home: Path | None) -> None:
    """Show what a server says about its new tools, and trust them. They ask before each call."""

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        await _check_own(toolbox, name)
        state = await toolbox.mcp.trust_text(OWNER, name, "")
        if not state.texts:
            console().print(f"There is nothing new to trust at {name}.")
        for text in state.texts:
            console().print(escape(shown_exactly(text.text)), soft_wrap=True)
            if not yes and not await asyncio.to_thread(click.confirm, f"\n{text.question}"):
                console().print("Nothing was trusted.")
                return
            await toolbox.mcp.trust_text(OWNER, name, text.digest)
            await note_change(config, "mcp.trusted", name)
            console().print("Trusted.")

    _with_toolbox(home, work)


@mcp.command()
@click.argument("name")
@home_option
def login(name: str, home: Path | None) -> None:
    """Sign in at a server, in a browser on this machine."""

    async def work(toolbox: EverturnToolbox, store: Store, config: Config) -> None:
        server = await toolbox.mcp.book.get(name)
        if not server.is_remote:
            raise WrongState(f"{name} is a program: it has no sign-in.")
        back = _Back()
        listener = await asyncio.start_server(back.take, "127.0.0.1", 0)
        async with listener:
            port = listener.sockets[0].getsockname()[1]
            address = await toolbox.mcp.sign_ins.begin(server, f"http://127.0.0.1:{port}/callback")
            console().print("Open this address, and sign in:")
            click.echo(address)
            try:
                query = await asyncio.wait_for(back.query, _SIGN_IN_S)
            except TimeoutError as error:
                raise WrongState(
                    "The sign-in was not finished. Nothing was changed.", hint="Try again."
                ) from error
        if "code" not in query:
            raise Invalid(f"The sign-in server says: {printable(query.get('error', 'nothing'))}")
        servers = dict(await toolbox.mcp.book.refresh())
        await toolbox.mcp.sign_ins.finish(query.get("state", ""), query["code"], query.get("iss"), servers)
        await note_change(config, "mcp.signed_in", name)
        count = await _let_turns_go_on(store, name)
        console().print(f"Signed in at {name}." + (f" Turns that continue: {count}." if count else ""))

    _with_toolbox(home, work)


async def _let_turns_go_on(store: Store, server: str) -> int:
    waiting = await open_sign_ins(store.asks, OWNER, server)
    for ask in waiting:
        await store.asks.answer(OWNER, ask.id, SignInAnswer.DONE, by="sign-in")
    return len(waiting)


class _Back:
    """Takes the browser back: one request with what the sign-in server sends along."""

    def __init__(self) -> None:
        self.query: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("latin-1").split(" ")
        path = urlsplit(line[1] if len(line) > 1 else "")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + _DONE)
        await writer.drain()
        writer.close()
        if path.path == "/callback" and not self.query.done():
            self.query.set_result({key: values[0] for key, values in parse_qs(path.query).items()})
