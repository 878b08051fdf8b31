"""everturn chat"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import click
import msgspec
from rich.console import Console

from everturn.cli import prompts
from everturn.cli.client import Client, Wire
from everturn.cli.frame import console, run, tell
from everturn.cli.screen import Screen
from everturn.domain.errors import EverturnError, Refused
from everturn.domain.events import TurnWaiting
from everturn.domain.storing import Ask

DEFAULT_ADDRESS = "http://127.0.0.1:8420"


@click.command()
@click.option("--server", default=None, help=f"The address; default EVERTURN_URL or {DEFAULT_ADDRESS}.")
@click.option("--token", default=None, help="An API token; default EVERTURN_TOKEN.")
@click.option("--session", "session_id", default=None, help="Continue this session instead of a new one.")
def chat(server: str | None, token: str | None, session_id: str | None) -> None:
    """Talk to a running server. Ctrl-C stops the turn; at the prompt it leaves, and /new starts anew."""
    address = server or os.environ.get("EVERTURN_URL") or DEFAULT_ADDRESS
    run(_chat(address, token or os.environ.get("EVERTURN_TOKEN"), session_id))


async def _chat(address: str, token: str | None, session_id: str | None) -> None:
    out = console()
    async with Client(address, token) as client:
        conversation = Conversation(client, session_id or await _new_session(client, None), out)
        out.print(f"[dim]{address} · {conversation.session_id} · /new starts another · Ctrl-D leaves[/dim]")
        while True:
            try:
                text = (await asyncio.to_thread(input, "\n> ")).strip()
                if text == "/new":
                    session_id = await _new_session(client, conversation.session_id)
                    conversation = Conversation(client, session_id, out)
                    out.print(f"[dim]{session_id}[/dim]")
                elif text:
                    await conversation.say(text)
            except (EOFError, KeyboardInterrupt):
                again = f"everturn chat --session {conversation.session_id}"
                out.print(f"\n[dim]Continue with: {again}[/dim]")
                return


async def _new_session(client: Client, leaving: str | None) -> str:
    """A fresh session. The one that is left is named, so that memory takes it in now."""
    body = {"leaving": leaving} if leaving else {}
    return str((await client.call("POST", "/api/sessions", body))["id"])


class Conversation:
    """One session on one terminal."""

    def __init__(self, client: Client, session_id: str, out: Console) -> None:
        self._client = client
        self.session_id = session_id
        self._out = out
        self._is_away = False
        self._asking: asyncio.Task[None] | None = None

    async def say(self, text: str) -> None:
        """Send, then show the turn to its end; Ctrl-C stops the turn, not the program."""
        turn_id, cursor = await self._client.send(self.session_id, text, self._away)
        loop = asyncio.get_running_loop()
        stops: set[asyncio.Task[None]] = set()

        def stop() -> None:
            task = asyncio.create_task(self._cancel(turn_id), name="cancel")
            stops.add(task)
            task.add_done_callback(stops.discard)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            with prompts.echo(False):
                await self._show(turn_id, cursor)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await asyncio.gather(*stops)

    async def _show(self, turn_id: str, cursor: int) -> None:
        screen = Screen(self._out)
        events: AsyncIterator[Wire] = self._client.follow(self.session_id, cursor, self._away)
        try:
            async for wire in events:
                self._is_away = False
                if wire.turn_id != turn_id:
                    continue
                if screen.show(wire.event):
                    if not isinstance(wire.event, TurnWaiting):
                        return
                    await self._ask()
        finally:
            screen.close()

    async def _ask(self) -> None:
        """Ask the person; Ctrl-C takes the questions back, and the turn's own end comes on the stream."""
        self._asking = asyncio.create_task(self._answer_all(), name="asking")
        try:
            await asyncio.wait({self._asking})
            if not self._asking.cancelled():
                self._asking.result()
        finally:
            self._asking.cancel()
            self._asking = None

    async def _answer_all(self) -> None:
        found = await self._client.call("GET", "/api/approvals")
        for item in found["items"]:
            ask = msgspec.convert(item, Ask)
            if ask.session_id == self.session_id:
                await self._answer(ask)

    async def _answer(self, ask: Ask) -> None:
        given = await prompts.answer_to(ask, self._out)
        is_approval = ask.topic == "approval"
        path = f"/api/approvals/{ask.id}" if is_approval else f"/api/questions/{ask.id}"
        try:
            await self._client.call("POST", path, {"decision" if is_approval else "answer": given})
        except Refused as error:  # somebody answered elsewhere meanwhile
            tell(error)

    async def _cancel(self, turn_id: str) -> None:
        try:
            await self._client.call("POST", f"/api/turns/{turn_id}/cancel", {})
        except EverturnError as error:
            tell(error)
        if self._asking is not None:
            self._out.print()
            self._asking.cancel()

    def _away(self) -> None:
        if not self._is_away:
            self._is_away = True
            self._out.print("[dim]The server is away. Waiting for it; nothing is lost.[/dim]")
