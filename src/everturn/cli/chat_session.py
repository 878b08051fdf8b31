"""One session on a terminal: messages are sent, turns are shown, questions are answered."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence

import msgspec
from rich.console import Console

from everturn.cli import prompts
from everturn.cli.client import Client, ServerRefused, WireEvent
from everturn.cli.common import print_error
from everturn.cli.screen import Screen
from everturn.domain.asks import Ask, AskTopic
from everturn.domain.errors import EverturnError
from everturn.domain.events import TurnWaiting
from everturn.domain.parameters import Parameters

_UNFIT = 422


class ChatSession:
    """One session on one terminal. Without an id it starts with its first message: none is left
    behind empty. ``project`` and ``model``: what it starts with."""

    def __init__(
        self, client: Client, session_id: str | None, out: Console, interrupts: prompts.Interrupts
    ) -> None:
        self._client = client
        self._interrupts = interrupts
        self.session_id = session_id
        self.project: str | None = None
        self.model: str | None = None
        self.parameters: Parameters | None = None  # for the session; None: it has them, or none were given
        self._leaving: str | None = None
        self._creation_key = ""
        self._out = out
        self._is_disconnected = False
        self._asking: asyncio.Task[None] | None = None

    def open(self, session_id: str) -> None:
        self.session_id, self.project, self.model = session_id, None, None

    def leave(self) -> None:
        """The next message starts another session; the server then commits this one to memory."""
        self._leaving = self.session_id or self._leaving
        self.session_id = self.project = self.model = None
        self._creation_key = ""

    async def _start(self) -> str:
        """The session's id. Repeated after an error it names the same creation: no second session is made."""
        if self.session_id is None:
            self._creation_key = self._creation_key or secrets.token_hex(16)
            chosen = {"leaving": self._leaving, "project": self.project, "model": self.model}
            body = {name: value for name, value in chosen.items() if value is not None}
            made = await self._client.retry_until_answered(
                "POST", "/api/sessions", body, self._notice_outage, key=self._creation_key
            )
            self.session_id = str(made["id"])
        return self.session_id

    async def _set_parameters(self, session_id: str) -> None:
        if self.parameters is not None:
            body = {"parameters": msgspec.to_builtins(self.parameters)}
            await self._client.retry_until_answered(
                "PATCH", f"/api/sessions/{session_id}", body, self._notice_outage
            )
            self.parameters = None

    async def say(self, text: str, files: Sequence[str] = ()) -> None:
        """Send a message with uploaded files, and show its turn; Ctrl-C stops the turn, not the program."""
        try:
            session_id = await self._start()
            await self._set_parameters(session_id)
            turn_id, cursor = await self._client.send(session_id, text, self._notice_outage, files)
        except EverturnError:
            self._out.print(f"Not sent: {text}", markup=False, soft_wrap=True)
            raise
        await self.show(turn_id, cursor)

    async def show(self, turn_id: str, cursor: int) -> None:
        """Show a turn to its end."""
        stops: set[asyncio.Task[None]] = set()

        def stop() -> None:
            task = asyncio.create_task(self._cancel(turn_id), name="cancel")
            stops.add(task)
            task.add_done_callback(stops.discard)

        try:
            with self._interrupts.mean(stop), prompts.echo(False):
                await self._follow(turn_id, cursor)
        finally:
            await asyncio.gather(*stops)

    async def _follow(self, turn_id: str, cursor: int) -> None:
        screen = Screen(self._out)
        events: AsyncIterator[WireEvent] = self._client.follow(
            self.session_id or "", cursor, self._notice_outage
        )
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
                await self.answer(ask)

    async def answer(self, ask: Ask) -> None:
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
