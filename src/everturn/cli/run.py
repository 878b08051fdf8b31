"""everturn run"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console

from everturn.app import App, open_app
from everturn.cli import prompts
from everturn.cli.frame import OWNER, console, home_option, naming_a_session, registry_of, run
from everturn.cli.frame import tell as tell_error
from everturn.cli.screen import Screen
from everturn.config import read_config
from everturn.domain import events as ev
from everturn.domain.errors import EverturnError, Invalid
from everturn.domain.storing import Accepted, Submission
from everturn.domain.turns import TurnKind
from everturn.engine.titles import title_from

# Exit codes, so that scripts can tell how the turn ended.
COMPLETED, FAILED, STOPPED, WAITING = 0, 1, 2, 3
TITLE_CHARS_MAX = 80


@click.command("run")
@click.argument("text")
@click.option(
    "--session",
    "session_id",
    help="Continue this session instead of a new one; 'everturn sessions' lists them.",
)
@click.option("--model", help="provider:name, for this turn.")
@click.option("--profile", help="The profile to work with.")
@click.option(
    "--attach",
    "attached",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True, readable=True),
    help="Attach a file: text, an image or a PDF. Can be given several times.",
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True),
    help="Work in this folder. For a new session; else it has a workspace of its own.",
)
@click.option("--compact", "is_compaction", is_flag=True, help="Summarise the session; TEXT is the focus.")
@click.option("--json", "is_json", is_flag=True, help="Print the events as JSON, one per line.")
@home_option
def run_(
    text: str,
    session_id: str | None,
    model: str | None,
    profile: str | None,
    attached: tuple[Path, ...],
    project: Path | None,
    is_compaction: bool,
    is_json: bool,
    home: Path | None,
) -> None:
    """Ask one question and see the turn to its end.

    Exit code: 0 completed, 1 failed, 2 stopped (or the command was not understood), 3 it waits for an answer
    that nobody could give here. A server may run on the same data folder at the same time.
    """
    if session_id is not None and project is not None:
        raise click.UsageError("--project is for a new session; this one has its workspace already.")
    if is_compaction and session_id is None:
        raise click.UsageError("--compact needs --session: a new session has nothing to summarise.")
    # What is wrong with a PDF is told to the model; between its words on a terminal it would only confuse.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    text = sys.stdin.read() if text == "-" else text
    if not (text.strip() or attached or is_compaction):
        raise click.UsageError("There is nothing to ask: TEXT is empty.")
    asked = Submission(text=text, model=model, profile=profile)
    if is_compaction:
        asked = Submission(kind=TurnKind.COMPACTION, note=text, model=model)
    sys.exit(run(_run(home, asked, session_id, attached, project, is_json)))


async def _run(
    home: Path | None,
    asked: Submission,
    session_id: str | None,
    attached: tuple[Path, ...],
    project: Path | None,
    is_json: bool,
) -> int:
    config = read_config(home)
    # Refused before there is a session without a turn.
    profile = config.profiles.get(asked.profile)
    model = asked.model or (None if session_id else profile.model or config.model)
    if model is not None:
        registry_of(config).check(model)
    async with open_app(config) as app:
        files = [await _attach(app, path) for path in attached]
        if session_id is None:
            folder = str(project) if project is not None else None
            session_id = (await app.engine.create_session(OWNER, project=folder)).id
            # Not by the model: this process ends with the turn, and would not wait for a title.
            title = title_from(asked.text or attached[0].name, TITLE_CHARS_MAX)
            await app.store.sessions.set_title(OWNER, session_id, title)
        asked = msgspec.structs.replace(asked, attachments=tuple(files))
        with naming_a_session():
            accepted = await _submit(app, session_id, asked)
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


async def _submit(app: App, session_id: str, asked: Submission) -> Accepted:
    if asked.kind is TurnKind.COMPACTION:
        return await app.engine.compact(OWNER, session_id, focus=asked.note)
    return await app.engine.submit(OWNER, session_id, asked)


async def _attach(app: App, path: Path) -> str:
    """Keep the file in the store, named for what it really is. Raises Invalid where it is too large."""
    from everturn.web.uploads import safe_name, sniffed  # the server's room, which takes time to enter

    bytes_max = app.config.web.upload_bytes_max
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise Invalid(f"{path.name} is larger than {bytes_max:,} bytes.", hint="Attach a part of it.")
    name = safe_name(path.name)
    return (await app.store.files.put(OWNER, name, sniffed(content[:512], name), content)).id


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
