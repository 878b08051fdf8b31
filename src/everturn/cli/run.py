"""everturn run"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import anyio
import click
import msgspec
from rich.console import Console

from everturn.app import App, open_app
from everturn.backups.unfinished import refuse_leftover
from everturn.cli import prompts
from everturn.cli.common import (
    OWNER,
    check_model,
    console,
    hint_at_sessions,
    home_option,
    open_config_store,
    print_error,
    printable,
    require_store,
    run,
)
from everturn.cli.parameters import parameter_options, parameters_of
from everturn.cli.screen import Screen
from everturn.config import Config, read_config
from everturn.domain import events as ev
from everturn.domain.asks import Ask
from everturn.domain.errors import EverturnError, Invalid, NothingToDo, WrongState
from everturn.domain.media import describe_file
from everturn.domain.sessions import NewSession, Session
from everturn.domain.store_values import Accepted, Submission
from everturn.domain.turns import ENDED, Turn, TurnKind, TurnState
from everturn.engine import Engine
from everturn.engine.titles import title_from
from everturn.store import Store, has_store
from everturn.tools.profile_book import ProfileBook
from everturn.tools.profiles import Profile
from everturn.web import configure_logs

# Exit codes, so that scripts can tell how the turn ended.
COMPLETED, FAILED, STOPPED, WAITING, HANDED_OVER = 0, 1, 2, 3, 4
TITLE_CHARS_MAX = 80


@click.command("run")
@click.argument("text", required=False)
@click.option(
    "--session",
    "session_id",
    help="Continue this session ('everturn sessions' lists them).",
)
@click.option("--model", help="Model for this turn (provider:name).")
@parameter_options
@click.option("--profile", help="Profile to use.")
@click.option(
    "--attach",
    "attached",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True, readable=True),
    help="Attach a text, document (PDF, Word, Excel …) or image. Repeatable.",
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True),
    help="Work in this folder (new sessions only). Default: a workspace of its own.",
)
@click.option("--resume", "is_resumption", is_flag=True, help="Resume the session's unfinished turn.")
@click.option(
    "--compact", "is_compaction", is_flag=True, help="Summarise the session; TEXT: what to focus on."
)
@click.option("--json", "is_json", is_flag=True, help="Print events as JSON, one per line.")
@home_option
def run_(
    text: str | None,
    session_id: str | None,
    model: str | None,
    effort: str | None,
    temperature: float | None,
    output_limit: int | None,
    profile: str | None,
    attached: tuple[Path, ...],
    project: Path | None,
    is_resumption: bool,
    is_compaction: bool,
    is_json: bool,
    home: Path | None,
) -> None:
    """Ask one question and follow the turn to its end. A server may use the same data folder meanwhile.

    Ctrl-C stops the turn. SIGTERM gives it time to finish (grace_s), then leaves it unfinished; a second
    SIGTERM does so at once. The turn continues with --session ID --resume, or when a server starts.

    Exit code: 0 completed, 1 failed, 2 stopped (or the command was not understood), 3 waiting for an answer
    that cannot be given here, 4 left unfinished.
    """
    # As the server does: escaped, and without secrets. Only what concerns the user.
    configure_logs(level="WARNING", style="people")
    if is_resumption:
        if session_id is None or text or attached or is_compaction:
            raise click.UsageError("--resume goes with --session, and with no TEXT or file.")
        sys.exit(run(_resume(home, session_id, is_json)))
    if text is None:
        raise click.UsageError("Missing argument 'TEXT'.")
    if session_id is not None and project is not None:
        raise click.UsageError("--project is for a new session; this one has its workspace already.")
    if is_compaction and session_id is None:
        raise click.UsageError("--compact needs --session: a new session has nothing to summarise.")
    text = sys.stdin.read() if text == "-" else text
    if not (text.strip() or attached or is_compaction):
        raise click.UsageError("Please give a question.")
    parameters = parameters_of(effort, temperature, output_limit)
    asked = Submission(text=text, model=model, profile=profile, parameters=parameters)
    if is_compaction:
        asked = Submission(kind=TurnKind.COMPACTION, note=text, model=model)
    sys.exit(run(_run(home, asked, session_id, attached, project, is_json)))


async def _profile_of(config: Config, name: str | None) -> Profile:
    """Raises Invalid. Those of config.toml are known without the store."""
    if name in (None, *config.profiles.names) or not has_store(config.database_url, config.home):
        return config.profiles.get(name)
    async with open_config_store(config) as store:
        return await ProfileBook(config.profiles, store.records).get(name)


async def _run(
    home: Path | None,
    asked: Submission,
    session_id: str | None,
    attached: tuple[Path, ...],
    project: Path | None,
    is_json: bool,
) -> int:
    config = read_config(home)
    refuse_leftover(config.home)
    profile = await _profile_of(config, asked.profile)
    model = asked.model or (None if session_id else profile.model or config.model)
    if model is not None:
        await check_model(config, model)  # first, so that an error leaves no session without a turn
    async with open_app(config) as app:
        files = [await _attach(app, path) for path in attached]
        if session_id is None:
            folder = str(project) if project is not None else None
            session_id = (await app.engine.create_session(OWNER, NewSession(project=folder))).id
            # Not written by the model: this process ends with the turn and would not wait for a title.
            title = title_from(asked.text or attached[0].name, TITLE_CHARS_MAX)
            await app.store.sessions.set_title(OWNER, session_id, title)
        asked = msgspec.structs.replace(asked, attachments=tuple(files))
        with hint_at_sessions():
            accepted = await _submit(app, session_id, asked)
        return await _follow_to_end(app, session_id, accepted, is_json)


async def _resume(home: Path | None, session_id: str, is_json: bool) -> int:
    config = read_config(home)
    require_store(config)
    # Read before the engine starts and continues the turn, so that no event is missed.
    async with open_config_store(config) as store:
        with hint_at_sessions():
            session = await store.sessions.get(OWNER, session_id)
        turn = await _find_unfinished(store, session)
    async with open_app(config) as app:
        if turn.state is TurnState.INTERRUPTED:
            await app.engine.resume(OWNER, turn.id)
        return await _follow_to_end(app, session_id, Accepted(turn, session.position), is_json)


async def _find_unfinished(store: Store, session: Session) -> Turn:
    """The running or waiting turn, else the next in the queue, else an interrupted last turn."""
    if session.active_turn is not None:
        return await store.turns.get(OWNER, session.active_turn)
    for queued in await store.turns.queue(OWNER, session.id):
        return queued
    last = await store.turns.get(OWNER, session.head) if session.head is not None else None
    if last is None or last.state is not TurnState.INTERRUPTED:
        raise NothingToDo("This session has no unfinished turn.", hint="Ask it something.")
    return last


async def _follow_to_end(app: App, session_id: str, accepted: Accepted, is_json: bool) -> int:
    """Show the turn until it ends or a signal stops this process."""
    loop, turn_id = asyncio.get_running_loop(), accepted.turn.id
    showing = asyncio.create_task(_follow(app, session_id, accepted, console(), is_json), name="show")
    graceful_stop = GracefulStop(app.engine, app.config.web.grace_s)
    gone = asyncio.create_task(graceful_stop.done.wait(), name="until let go")
    stops: list[asyncio.Task[object]] = []

    def stop() -> None:
        cancel = app.engine.cancel(OWNER, turn_id, by="terminal")
        stops.append(asyncio.create_task(cancel, name="cancel"))

    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGTERM, graceful_stop)
    try:
        await asyncio.wait({showing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not showing.done():
            state = (await app.store.turns.get(OWNER, turn_id)).state
            if state not in ENDED:
                return _report_unfinished(session_id, state)
        code = await showing
        for result in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(result, EverturnError):
                print_error(result)
        return code
    finally:
        for task in (showing, gone):
            task.cancel()
        await asyncio.wait({showing, gone})  # the display restores the terminal when it ends
        await graceful_stop.close()
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


def _report_unfinished(session_id: str, state: TurnState) -> int:
    again = f"everturn run --session {session_id} --resume"
    click.echo(f"\nThe turn is unfinished; nothing is lost. Continue with: {again}", err=True)
    return WAITING if state is TurnState.WAITING else HANDED_OVER


class GracefulStop:
    """The SIGTERM handler: gives the turn time to end, then releases it. A second signal does so at once."""

    def __init__(self, engine: Engine, grace_s: float) -> None:
        self._engine = engine
        self._grace_s = grace_s
        self._is_hurried = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self.done = asyncio.Event()

    def __call__(self) -> None:
        if self._stopping is not None:
            self._is_hurried.set()
            return
        click.echo(f"Waiting {self._grace_s:g} seconds for the turn; signal again to stop now.", err=True)
        self._stopping = asyncio.create_task(self._stop(), name="stop")

    async def _stop(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._hurry, group.cancel_scope, name="hurry")
                await self._engine.stop(self._grace_s)
                group.cancel_scope.cancel()
            await self._engine.stop(0.0)  # finishes a stop that was cut short
        finally:
            self.done.set()

    async def _hurry(self, scope: anyio.CancelScope) -> None:
        await self._is_hurried.wait()
        scope.cancel()

    async def close(self) -> None:
        if self._stopping is not None:
            await self._stopping


async def _submit(app: App, session_id: str, asked: Submission) -> Accepted:
    if asked.kind is TurnKind.COMPACTION:
        return await app.engine.compact(OWNER, session_id, focus=asked.note)
    return await app.engine.submit(OWNER, session_id, asked)


async def _attach(app: App, path: Path) -> str:
    """Keep the file in the store, named for what it really is. Raises Invalid where it is too large."""
    bytes_max = app.config.web.upload_bytes_max
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise Invalid(f"{path.name} is larger than {bytes_max:,} bytes.", hint="Attach a part of it.")
    name, media_type = describe_file(path.name, content)
    return (await app.store.files.put(OWNER, name, media_type, content)).id


async def _follow(app: App, session_id: str, accepted: Accepted, out: Console, is_json: bool) -> int:
    screen = Screen(out)
    try:
        # An earlier turn that waits for an answer blocks this one.
        if not await _answer_open_asks(app, session_id, out):
            return WAITING
        async for batch in app.engine.follow(OWNER, session_id, accepted.cursor):
            for event in batch:
                payload = event.payload
                if event.turn_id != accepted.turn.id:
                    if isinstance(payload, ev.TurnWaiting) and not await _answer_open_asks(
                        app, session_id, out
                    ):
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
                if not await _answer_open_asks(app, session_id, out):
                    return WAITING
    finally:
        screen.close()
    return FAILED


async def _answer_open_asks(app: App, session_id: str, out: Console) -> bool:
    """Answer the session's open asks; False if there is no terminal to ask on."""
    asks = await app.store.asks.open(OWNER, session_id)
    if asks and not prompts.can_ask():
        for ask in asks:
            question = printable((ask.label or ask.text).partition("\n")[0])
            console(stderr=True).print(
                f"The session waits for an answer: {question}\n"
                f"It is kept. Answer on the page or with 'everturn chat --session {session_id}'.",
                soft_wrap=True,  # so that the command can be copied whole
                markup=False,  # it is the model's text
            )
        return False
    for ask in asks:
        await _answer(app, ask, out)
    return True


async def _answer(app: App, ask: Ask, out: Console) -> None:
    while True:
        given = await prompts.ask_user(ask, out)
        try:
            await app.engine.answer(OWNER, ask.id, given.answer, by="terminal", arguments=given.arguments)
            return
        except Invalid as error:  # arguments that do not fit the tool: the question is still open
            print_error(error)
        except WrongState as error:  # answered elsewhere meanwhile
            print_error(error)
            return


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
