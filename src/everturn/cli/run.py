"""everturn run"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console

from everturn.app import App, open_app
from everturn.cli import prompts
from everturn.cli.frame import OWNER, console, home_option, run
from everturn.cli.frame import tell as tell_error
from everturn.cli.screen import Screen
from everturn.config import read_config
from everturn.domain import events as ev
from everturn.domain.errors import EverturnError
from everturn.domain.storing import Accepted, Submission

# Exit codes, so that scripts can tell how the turn ended.
COMPLETED, FAILED, STOPPED, WAITING = 0, 1, 2, 3


@click.command("run")
@click.argument("text")
@click.option("--session", "session_id", help="Continue this session instead of a new one.")
@click.option("--model", help="provider:name, for this turn.")
@click.option("--profile", help="The profile to work with.")
@click.option("--json", "is_json", is_flag=True, help="Print the events as JSON, one per line.")
@home_option
def run_(
    text: str,
    session_id: str | None,
    model: str | None,
    profile: str | None,
    is_json: bool,
    home: Path | None,
) -> None:
    """Ask one question and see the turn to its end.

    Exit code: 0 completed, 1 failed, 2 stopped, 3 it waits for an answer that nobody could give here.
    A server may run on the same data folder at the same time.
    """
    asked = Submission(text=sys.stdin.read() if text == "-" else text, model=model, profile=profile)
    sys.exit(run(_run(home, asked, session_id, is_json)))


async def _run(home: Path | None, asked: Submission, session_id: str | None, is_json: bool) -> int:
    async with open_app(read_config(home)) as app:
        if session_id is None:
            session_id = (await app.engine.create_session(OWNER)).id
        accepted = await app.engine.submit(OWNER, session_id, asked)
        out = console()
        stops: list[asyncio.Task[object]] = []

        def stop() -> None:
            cancel = app.engine.cancel(OWNER, accepted.turn.id, by="terminal")
            stops.append(asyncio.create_task(cancel, name="cancel"))

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            code = await _follow(app, session_id, accepted, out, is_json)
            for result in await asyncio.gather(*stops, return_exceptions=True):
                if isinstance(result, EverturnError):
                    tell_error(result)
            return code
        finally:
            loop.remove_signal_handler(signal.SIGINT)


async def _follow(app: App, session_id: str, accepted: Accepted, out: Console, is_json: bool) -> int:
    screen = Screen(out)
    try:
        # An earlier turn that waits, perhaps since its process was killed, holds this one back.
        if not await _answered(app, session_id, out):
            return WAITING
        async for batch in app.engine.follow(OWNER, session_id, accepted.cursor):
            for event in batch:
                payload = event.payload
                if event.turn_id != accepted.turn.id:
                    if isinstance(payload, ev.TurnWaiting) and not await _answered(app, session_id, out):
                        return WAITING
                    continue
                if is_json:
                    _print_json(event)
                    is_at_rest = isinstance(payload, (ev.TurnWaiting, *_CODES))
                else:
                    is_at_rest = screen.show(payload)
                if not is_at_rest:
                    continue
                if not isinstance(payload, ev.TurnWaiting):
                    return _CODES[type(payload)]
                if not await _answered(app, session_id, out):
                    return WAITING
    finally:
        screen.close()
    return FAILED


async def _answered(app: App, session_id: str, out: Console) -> bool:
    """Answer what the turn waits for; False where there is nobody to ask."""
    asks = await app.store.asks.open(OWNER, session_id)
    if asks and not prompts.can_ask():
        for ask in asks:
            console(stderr=True).print(
                f"The session waits for an answer: {ask.label or ask.text}\n"
                f"It is kept. Answer on the page or with 'everturn chat --session {session_id}'.",
                soft_wrap=True,  # so that the command can be copied whole
                markup=False,  # it is the model's text
            )
        return False
    for ask in asks:
        await app.engine.answer(OWNER, ask.id, await prompts.answer_to(ask, out), by="terminal")
    return True


def _print_json(event: ev.Event) -> None:
    line = {
        "session_id": event.session_id,
        "position": event.position,
        "turn_id": event.turn_id,
        "at": event.at,
        "event": msgspec.Raw(event.data),
    }
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


_CODES: dict[type, int] = {
    ev.TurnCompleted: COMPLETED,
    ev.TurnFailed: FAILED,
    ev.TurnCancelled: STOPPED,
    ev.TurnInterrupted: STOPPED,
}
