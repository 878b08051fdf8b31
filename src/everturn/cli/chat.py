"""everturn chat"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click
import msgspec
from rich.console import Console

from everturn.cli import prompts
from everturn.cli.chat_commands import ChatCommands
from everturn.cli.chat_session import ChatSession
from everturn.cli.client import Client, ServerRefused
from everturn.cli.common import console, home_option, print_error, run, server_address
from everturn.cli.line_editor import Lines, open_lines
from everturn.cli.parameters import parameter_options, parameters_of
from everturn.config import read_config
from everturn.domain.errors import EverturnError
from everturn.domain.parameters import Parameters

LEFT_BY_SIGNAL = 130
_NO_SESSION = (404, 410, 422)  # unknown, deleted, not an id


class ChatOptions(msgspec.Struct, frozen=True):
    """What the flags choose. ``project`` and ``model``: of the session that the first message starts."""

    session_id: str | None = None
    project: str | None = None
    model: str | None = None
    parameters: Parameters | None = None
    attach: tuple[str, ...] = ()
    is_plain: bool = False


@click.command()
@click.option("--server", default=None, help="Server address. Default: EVERTURN_URL, or as in the settings.")
@home_option
@click.option("--token", default=None, help="API token. Default: EVERTURN_TOKEN.")
@click.option("--session", default=None, help="Continue this session ('everturn sessions' lists them).")
@click.option("--project", default=None, help="The new session works in this folder of the server.")
@click.option("--model", default=None, help="The new session uses this model.")
@parameter_options
@click.option("--attach", multiple=True, help="Send this file with the first message (can be repeated).")
@click.option("--plain", is_flag=True, help="Lines without editing, history and completion.")
def chat(
    server: str | None,
    home: Path | None,
    token: str | None,
    session: str | None,
    project: str | None,
    model: str | None,
    effort: str | None,
    temperature: float | None,
    output_limit: int | None,
    attach: tuple[str, ...],
    plain: bool,
) -> None:
    """Chat with a running server. Ctrl-C stops the turn; at the prompt it quits. /help lists the commands.

    The server must be running at the start; if it stops later, chat waits for it. With the extra "chat" (pip
    install 'everturn[chat]') lines have editing, history and completion. Exit code: 0 quit, 1 the server
    cannot be reached or refused, 2 there is no such session (or the command was not understood).
    """
    if session and (project or model):
        raise click.UsageError("--project and --model are for a new session; /model changes one that exists.")
    address = server or os.environ.get("EVERTURN_URL") or server_address(read_config(home))[0].rstrip("/")
    folder = str(Path(project).expanduser().absolute()) if project else None
    parameters = parameters_of(effort, temperature, output_limit)
    options = ChatOptions(session, folder, model, parameters, attach, plain)
    sys.exit(run(_chat(address, token or os.environ.get("EVERTURN_TOKEN"), options)))


async def _chat(address: str, token: str | None, options: ChatOptions) -> int:
    interrupts = prompts.Interrupts()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupts)
    ask = partial(prompts.password, interrupts=interrupts) if prompts.can_ask() else None
    async with Client(address, token, ask) as client:
        chat = TerminalChat(client, address, console(), interrupts)
        talking = asyncio.create_task(chat.run(options), name="chat")
        with interrupts.mean(talking.cancel):
            await asyncio.wait({talking})
        return LEFT_BY_SIGNAL if talking.cancelled() else talking.result()


class TerminalChat:
    """A terminal connected to a server, with one session after another."""

    def __init__(self, client: Client, address: str, out: Console, interrupts: prompts.Interrupts) -> None:
        self._client = client
        self._address = address
        self._out = out
        self._interrupts = interrupts

    async def run(self, options: ChatOptions) -> int:
        """Send lines until the user quits. A refusal is printed; without a terminal it ends the chat."""
        session = ChatSession(self._client, options.session_id, self._out, self._interrupts)
        session.project, session.model = options.project, options.model
        session.parameters = options.parameters
        commands = ChatCommands(self._client, self._out, session)
        lines = open_lines(self._interrupts, commands.complete, is_plain=options.is_plain)
        if options.session_id is None:
            await self._client.call(
                "GET", "/api/me"
            )  # a server that is away is reported before anything is typed
        else:
            await _require_session(self._client, options.session_id)
        for path in options.attach:
            await commands.attach(path)
        shown = options.session_id or "new session"
        self._out.print(f"[dim]{self._address} · {shown} · /help · Ctrl-D to quit[/dim]", soft_wrap=True)
        try:
            await self._talk(lines, commands)
        except _LeftByError:
            return 1
        except EOFError:
            return 0
        finally:
            if session.session_id is not None:
                again = f"everturn chat --session {session.session_id}"
                self._out.print(f"\n[dim]Continue with: {again}[/dim]", soft_wrap=True)
        return 0

    async def _talk(self, lines: Lines, commands: ChatCommands) -> None:
        offered: str | None = ""
        while True:
            try:
                if offered != commands.session.session_id:
                    offered = commands.session.session_id
                    lines.remember(await commands.earlier_messages())
                await self._take(await lines.read(), commands)
            except EverturnError as error:
                print_error(error)
                if not prompts.can_ask():
                    raise _LeftByError from error

    async def _take(self, line: str, commands: ChatCommands) -> None:
        if line.startswith("/") and not line.startswith("//"):
            await commands.run(line.strip())
        elif text := line.removeprefix("/").strip():
            await commands.say(text)


class _LeftByError(Exception):
    """A refusal ended a chat without a terminal. It was printed."""


async def _require_session(client: Client, session_id: str) -> None:
    try:
        await client.call("GET", f"/api/sessions/{quote(session_id, safe='')}")
    except ServerRefused as error:
        if error.facts["status"] not in _NO_SESSION:
            raise
        raise click.BadParameter(
            f"{error.message} 'everturn sessions' lists those of this machine.", param_hint="--session"
        ) from error
