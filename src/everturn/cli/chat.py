"""everturn chat"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click
import msgspec
from rich.console import Console

from everturn.cli import prompts
from everturn.cli.client import Client, ServerRefused, WireEvent
from everturn.cli.common import console, home_option, print_error, run, server_address
from everturn.cli.screen import Screen
from everturn.config import read_config
from everturn.domain.asks import Ask, AskTopic
from everturn.domain.errors import EverturnError
from everturn.domain.events import TurnWaiting

LEFT_BY_SIGNAL = 130
_UNFIT = 422
_NO_SESSION = (404, 410, 422)  # unknown, deleted, not an id


@click.command()
@click.option("--server", default=None, help="Server address. Default: EVERTURN_URL, or as in the settings.")
@home_option
@click.option("--token", default=None, help="API token. Default: EVERTURN_TOKEN.")
@click.option(
    "--session",
    "session_id",
    default=None,
    help="Continue this session ('everturn sessions' lists them).",
)
def chat(server: str | None, home: Path | None, token: str | None, session_id: str | None) -> None:
    """Chat with a running server. Ctrl-C stops the turn; at the prompt it quits. /help lists the commands.

    The server must be running at the start; if it stops later, chat waits for it. Exit code: 0 quit, 1 the
    server cannot be reached or refused, 2 there is no such session (or the command was not understood).
    """
    address = server or os.environ.get("EVERTURN_URL") or server_address(read_config(home))[0].rstrip("/")
    sys.exit(run(_chat(address, token or os.environ.get("EVERTURN_TOKEN"), session_id)))


async def _chat(address: str, token: str | None, session_id: str | None) -> int:
    interrupts = prompts.Interrupts()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupts)
    ask = partial(prompts.password, interrupts=interrupts) if prompts.can_ask() else None
    async with Client(address, token, ask) as client:
        chat = TerminalChat(client, address, console(), interrupts)
        talking = asyncio.create_task(chat.run(session_id), name="chat")
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

    async def run(self, session_id: str | None) -> int:
        """Send lines until the user quits. A refusal is printed; without a terminal it ends the chat."""
        if session_id is None:
            session_id = await _new_session(self._client, None)
        else:
            await _require_session(self._client, session_id)
        self._enter(session_id)
        self._out.print(f"[dim]{self._address} · {session_id} · /help · Ctrl-D to quit[/dim]", soft_wrap=True)
        try:
            while True:
                try:
                    await self._take(await prompts.line("\n> ", self._interrupts))
                except EverturnError as error:
                    print_error(error)
                    if not prompts.can_ask():
                        return 1
        except EOFError:
            return 0
        finally:
            again = f"everturn chat --session {self._session.session_id}"
            self._out.print(f"\n[dim]Continue with: {again}[/dim]", soft_wrap=True)

    def _enter(self, session_id: str) -> None:
        self._session = ChatSession(self._client, session_id, self._out, self._interrupts)

    async def _take(self, line: str) -> None:
        if line.startswith("/") and not line.startswith("//"):
            await self._command(line.strip())
        elif text := line.removeprefix("/").strip():
            await self._session.say(text)

    async def _command(self, name: str) -> None:
        if name == "/new":
            self._enter(await _new_session(self._client, self._session.session_id))
            self._out.print(f"[dim]{self._session.session_id}[/dim]")
        elif name == "/quit":
            raise EOFError
        elif name in ("/", "/help"):
            self._out.print(_HELP, markup=False)
        else:
            word = name.split()[0][:40]
            self._out.print(f"There is no command {word}; nothing was sent.\n{_HELP}", markup=False)


_HELP = """\
  /new    start a new session
  /quit   quit (also Ctrl-D or Ctrl-C)
  /help   show this list
Ctrl-C during an answer stops it. To send a message that starts with a slash, type // or a space first.
'everturn sessions' lists sessions; 'everturn chat --session ID' continues one."""


async def _require_session(client: Client, session_id: str) -> None:
    try:
        await client.call("GET", f"/api/sessions/{quote(session_id, safe='')}")
    except ServerRefused as error:
        if error.facts["status"] not in _NO_SESSION:
            raise
        raise click.BadParameter(
            f"{error.message} 'everturn sessions' lists those of this machine.", param_hint="--session"
        ) from error


async def _new_session(client: Client, leaving: str | None) -> str:
    """Create a session. The server commits the session that is left to memory."""
    body = {"leaving": leaving} if leaving else {}
    return str((await client.call("POST", "/api/sessions", body))["id"])


class ChatSession:
    """One session on one terminal."""

    def __init__(self, client: Client, session_id: str, out: Console, interrupts: prompts.Interrupts) -> None:
        self._client = client
        self._interrupts = interrupts
        self.session_id = session_id
        self._out = out
        self._is_disconnected = False
        self._asking: asyncio.Task[None] | None = None

    async def say(self, text: str) -> None:
        """Send a message and show the turn to its end; Ctrl-C stops the turn, not the program."""
        try:
            turn_id, cursor = await self._client.send(self.session_id, text, self._notice_outage)
        except EverturnError:
            self._out.print(f"Not sent: {text}", markup=False, soft_wrap=True)
            raise
        stops: set[asyncio.Task[None]] = set()

        def stop() -> None:
            task = asyncio.create_task(self._cancel(turn_id), name="cancel")
            stops.add(task)
            task.add_done_callback(stops.discard)

        try:
            with self._interrupts.mean(stop), prompts.echo(False):
                await self._show(turn_id, cursor)
        finally:
            await asyncio.gather(*stops)

    async def _show(self, turn_id: str, cursor: int) -> None:
        screen = Screen(self._out)
        events: AsyncIterator[WireEvent] = self._client.follow(self.session_id, cursor, self._notice_outage)
        try:
            async for wire in events:
                self._is_disconnected = False
                if wire.turn_id != turn_id:
                    continue
                if screen.show(wire.event):
                    if not isinstance(wire.event, TurnWaiting):
                        return
                    await self._ask()
        finally:
            screen.close()

    async def _ask(self) -> None:
        """Ask the user; Ctrl-C withdraws the questions, and the end of the turn arrives on the stream."""
        self._asking = asyncio.create_task(self._answer_all(), name="asking")
        try:
            await asyncio.wait({self._asking})
            if not self._asking.cancelled():
                self._asking.result()
        finally:
            self._asking.cancel()
            self._asking = None

    async def _answer_all(self) -> None:
        found = await self._client.retry_until_answered("GET", "/api/approvals", None, self._notice_outage)
        for item in found["items"]:
            ask = msgspec.convert(item, Ask)
            if ask.session_id == self.session_id:
                await self._answer(ask)

    async def _answer(self, ask: Ask) -> None:
        is_approval = ask.topic == AskTopic.APPROVAL
        path = f"/api/approvals/{ask.id}" if is_approval else f"/api/questions/{ask.id}"
        while True:
            given = await prompts.ask_user(ask, self._out)
            body = {"decision" if is_approval else "answer": given.answer}
            if given.arguments is not None:
                body["arguments"] = given.arguments
            try:
                await self._client.retry_until_answered(
                    "POST", path, body, self._notice_outage
                )  # the same answer twice is one
                return
            except ServerRefused as error:
                print_error(error)
                # Invalid arguments leave the question open. Otherwise it was answered elsewhere, and the turn
                # continues.
                if given.arguments is None or error.facts["status"] != _UNFIT:
                    return

    async def _cancel(self, turn_id: str) -> None:
        try:
            await self._client.call("POST", f"/api/turns/{turn_id}/cancel", {})
        except EverturnError as error:
            print_error(error)
        if self._asking is not None:
            self._out.print()
            self._asking.cancel()

    def _notice_outage(self) -> None:
        if not self._is_disconnected:
            self._is_disconnected = True
            self._out.print("[dim]Server unreachable. Waiting to reconnect; nothing is lost.[/dim]")
