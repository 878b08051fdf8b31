"""What can be typed after a slash in ``everturn chat``, and what completes it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

import anyio
import msgspec
from rich.console import Console
from rich.text import Text

from everturn.cli import prompts
from everturn.cli.chat_session import ChatSession
from everturn.cli.client import Client, ServerRefused
from everturn.cli.common import printable
from everturn.cli.line_editor import files_like
from everturn.cli.slash import SlashName, expand_slash, slash_names
from everturn.domain.asks import Ask
from everturn.domain.errors import EverturnError, Invalid
from everturn.domain.json_types import Json

_LISTED = 20
_ABOUT_CHARS_MAX = 60
_FITTING_SHOWN = 6
_PIECE_BYTES = 1 << 16
_CONFLICT = "files_conflict"
_FILES_PROMPT = "  Your files: [k]eep · [r]estore earlier · [b]oth · [c]ancel "
_CHOICES = {"k": "keep", "r": "restore", "b": "both"}


class SlashCommand(NamedTuple):
    usage: str
    help: str
    run: Callable[[str], Awaitable[None]]


class ChatCommands:
    """``session``: the one that messages go to; it can be another one after each command."""

    def __init__(self, client: Client, out: Console, session: ChatSession) -> None:
        self._client = client
        self._out = out
        self.session = session
        self._attached: list[tuple[str, str]] = []  # id and name of what goes with the next message
        self._listed: list[str] = []  # ids that /sessions has numbered
        self._models: list[str] | None = None
        self._commands = {
            "/new": SlashCommand("/new", "start a new session", self._new),
            "/sessions": SlashCommand(
                "/sessions [WORDS]", "list sessions; /sessions 3 opens one", self._sessions
            ),
            "/model": SlashCommand("/model [NAME]", "show or change the session's model", self._model),
            "/retry": SlashCommand("/retry [MODEL]", "answer the last message again", self._retry),
            "/undo": SlashCommand("/undo", "take the last message and its answer back", self._undo),
            "/redo": SlashCommand("/redo", "bring back what /undo took", self._redo),
            "/attach": SlashCommand("/attach FILE", "send a file with the next message", self.attach),
            "/approve": SlashCommand(
                "/approve", "answer what waits for you, in every session", self._approve
            ),
            "/jobs": SlashCommand("/jobs [stop ID]", "list or stop jobs in the background", self._jobs),
            "/quit": SlashCommand("/quit", "quit (also Ctrl-D, or Ctrl-C on an empty line)", self._quit),
            "/help": SlashCommand("/help", "show this list", self._help),
        }

    async def run(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == "/":
            name = "/help"
        command = self._commands.get(name)
        if command is None and name[1:] in {one.name for one in await self._slash_names()}:
            return await self.say(await expand_slash(self._client, self.session.session_id, line))
        if command is None:
            self._print(f"There is no command, skill or prompt {name[:40]}; nothing was sent.")
            command = self._commands["/help"]
        return await command.run(rest.strip())

    async def say(self, text: str) -> None:
        """Send a message with what is attached. What could not be sent stays attached."""
        await self.session.say(text, [ident for ident, _ in self._attached])
        self._attached.clear()

    async def earlier_messages(self) -> list[str]:
        """The user's own messages of the session, the oldest first."""
        if self.session.session_id is None:
            return []
        page = await self._client.call("GET", f"{self._path()}/messages?limit=200")
        return [
            text for message in page["messages"] if message["role"] == "user" and (text := _text_of(message))
        ]

    # --- sessions ------------------------------------------------------------------------------------

    async def _new(self, _: str) -> None:
        self.session.leave()
        self._print("A new session starts with your next message.")

    async def _sessions(self, words: str) -> None:
        if words.isdigit() and 0 < int(words) <= len(self._listed):
            words = self._listed[int(words) - 1]
        if words.startswith("ses_"):
            found = await self._client.call("GET", f"/api/sessions/{_quote(words)}")
            self.session.open(str(found["id"]))
            self._print(f"Now in {self.session.session_id}: {_title_of(found)}")
            if found.get("asks"):
                self._print("Something waits for you here: /approve answers it.")
            return None
        page = await self._client.call("GET", f"/api/sessions?limit={_LISTED}&q={_quote(words)}")
        self._listed = [str(row["id"]) for row in page["items"]]
        if not self._listed:
            return self._print("No sessions found." if words else "There are no sessions yet.")
        for number, row in enumerate(page["items"], start=1):
            mark = "*" if row["id"] == self.session.session_id else " "
            changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["updated_at"] / 1000))
            self._print(
                f"{mark}{number:3}  {changed}  {'waiting  ' if row.get('asks') else ''}{_title_of(row)}"
            )
        return self._print("/sessions NUMBER opens one.")

    async def _model(self, name: str) -> None:
        session = self.session
        name = await self._resolve_model(name)
        if not name:
            known = None
            if session.session_id is not None:
                known = (await self._client.call("GET", self._path())).get("model")
            default = (await self._client.call("GET", "/api/models"))["default"]
            return self._print(f"{known or session.model or f'{default} (the default)'}")
        if session.session_id is not None:
            await self._client.call("PATCH", self._path(), {"model": name})
        session.model = name
        return self._print(f"The next answer is from {name}.")

    # --- moves ---------------------------------------------------------------------------------------

    async def _retry(self, model: str) -> None:
        model = await self._resolve_model(model)
        accepted = await self._move("retry", {"model": model} if model else {})
        if accepted is not None:
            await self.session.show(str(accepted["turn"]["id"]), int(accepted["cursor"]))

    async def _undo(self, _: str) -> None:
        if await self._move("undo", {}) is not None:
            self._print("Taken back. /redo brings it back.")

    async def _redo(self, _: str) -> None:
        if await self._move("redo", {}) is not None:
            self._print("Brought back.")

    async def _move(self, name: str, body: Json) -> Json:
        """None: files that the user changed are in the way, and nothing was moved."""
        path, given = f"{self._path()}/{name}", dict(body)
        while True:
            try:
                return await self._client.call("POST", path, given, key=secrets.token_hex(16))
            except ServerRefused as error:
                if error.facts["reason"] != _CONFLICT or not prompts.can_ask():
                    raise
                self._print(f"{printable(error.message)} {printable(error.hint)}")
                choice = await prompts.choose(
                    "  Your files: [k]eep · [r]estore earlier · [b]oth · [c]ancel ", "krbc"
                )
                if choice == "c":
                    self._print("Nothing was changed.")
                    return None
                given["files"] = _CHOICES[choice]

    # --- files, approvals, jobs ----------------------------------------------------------------------

    async def attach(self, path: str) -> None:
        file = await anyio.Path(path).expanduser()
        if not path or not await file.is_file():
            name = printable(path) or "Nothing"
            raise Invalid(f"{name} is not a file.", hint="Name a file of this computer.")
        ident = await self._client.upload(file.name, _pieces(file))
        self._attached.append((ident, file.name))
        names = ", ".join(printable(name) for _, name in self._attached)
        self._print(f"Goes with your next message: {names}")

    async def _approve(self, _: str) -> None:
        items = (await self._client.call("GET", "/api/approvals"))["items"]
        if not items:
            return self._print("Nothing waits for you.")
        mine: Ask | None = None
        position = await self._position()
        for item in items:
            ask = msgspec.convert(item, Ask)
            if ask.session_id != self.session.session_id:
                self._print(f"In {ask.session_id}:")
            else:
                mine = ask
            await self.session.answer(ask)
        if mine is not None:
            return await self.session.show(mine.turn_id, position)  # the turn goes on
        return self._print("Answered.")

    async def _position(self) -> int:
        if self.session.session_id is None:
            return 0
        return int((await self._client.call("GET", self._path()))["position"])

    async def _jobs(self, words: str) -> None:
        verb, _, ident = words.partition(" ")
        if verb == "stop" and ident:
            await self._client.call("POST", f"/api/jobs/{_quote(ident.strip())}/stop", {})
            return self._print("It is being stopped.")
        items = (await self._client.call("GET", f"/api/jobs?limit={_LISTED}"))["items"]
        if not items:
            return self._print("There are no jobs.")
        for job in items:
            command = " ".join(printable(job["command"]).split())[:80]
            self._print(f"{job['id']}  {job['state']:<8}  {command}")
        return None

    # --- the rest ------------------------------------------------------------------------------------

    async def _quit(self, _: str) -> None:
        raise EOFError

    async def _help(self, _: str) -> None:
        width = max(len(command.usage) for command in self._commands.values())
        for command in self._commands.values():
            self._print(f"  {command.usage:<{width}}  {command.help}")
        for one in await self._slash_names():
            words = (f"/{one.name}", *(f"{variable.name}=…" for variable in one.variables))
            self._print(
                f"  {' '.join(words):<{width}}  {one.kind}: {printable(one.description)[:_ABOUT_CHARS_MAX]}"
            )
        self._print(_HELP)

    async def complete(self, line: str) -> tuple[Sequence[str], int]:
        """What a slash begins at the start of a line, then a model or a file of this computer; @ files of a
        session."""
        name, space, rest = line.partition(" ")
        if line.startswith("/") and not space:
            return await self._complete_slash(line), len(line)
        try:
            if name == "/attach":
                return files_like(rest), len(rest)
            if name in ("/model", "/retry"):
                return _find_fitting(rest, await self._model_names()), len(rest)
            word = line.rsplit(None, 1)[-1] if line and not line[-1].isspace() else ""
            if word.startswith("@") and self.session.session_id is not None:
                found = await self._client.call("GET", f"{self._path()}/files?q={_quote(word[1:])}")
                paths = [str(entry["path"]) for entry in found["files"]]
                return [path for path in paths if path.isprintable()], len(word)
        except EverturnError:
            return [], 0  # completion is an offer; sending the line says what is wrong
        return [], 0

    async def _complete_slash(self, start: str) -> list[str]:
        named = [f"/{one.name}" for one in await self._slash_names()]
        return [name for name in (*self._commands, *named) if name.startswith(start)]

    async def _slash_names(self) -> Sequence[SlashName]:
        """The skills and prompts; none if the server cannot say."""
        try:
            return await slash_names(self._client, self.session.session_id)
        except EverturnError:
            return ()  # the commands work without them

    async def _resolve_model(self, name: str) -> str:
        """The one model that a part of its name fits; empty for an empty name. ``provider:name`` may exist
        without being listed, and is taken as it is. Raises Invalid."""
        names = await self._model_names() if name else []
        fitting = _find_fitting(name, names) if name else []
        if not name or name in names or len(fitting) == 1:
            return name if not name or name in names else fitting[0]
        if fitting and ":" not in name:
            some = ", ".join(printable(model) for model in fitting[:_FITTING_SHOWN])
            raise Invalid(f"{printable(name)} fits several models: {some}.", hint="Write more of the name.")
        if ":" not in name:
            raise Invalid(
                f"There is no model {printable(name)}; nothing was changed.",
                hint="Tab after /model completes names; 'everturn models list' lists them.",
            )
        return name

    async def _model_names(self) -> list[str]:
        if self._models is None:
            found = await self._client.call("GET", "/api/models")
            self._models = [str(model["name"]) for model in found["models"] if model.get("can_chat", True)]
        return self._models

    def _path(self) -> str:
        if self.session.session_id is None:
            raise Invalid("This session has no messages yet.", hint="Write one first.")
        return f"/api/sessions/{self.session.session_id}"

    def _print(self, text: str) -> None:
        self._out.print(Text(text), soft_wrap=True)


_HELP = """\
Enter sends. With the extra "chat": Alt-Enter begins a new line, Tab completes commands, skills, prompts,
models and files, and @ names a file of the session. Ctrl-C during an answer stops it. To send a
message that starts with a slash, type // or a space first."""


def _find_fitting(part: str, names: Sequence[str]) -> list[str]:
    """The names with this part: those that begin with it, else those whose model begins so, else all."""
    wanted = part.lower()
    for begins in (
        lambda name: name.startswith(wanted),
        lambda name: name.partition(":")[2].startswith(wanted),
        lambda name: wanted in name,
    ):
        if found := [name for name in names if begins(name.lower())]:
            whole = [name for name in found if wanted in (name.lower(), name.lower().partition(":")[2])]
            return whole if len(whole) == 1 else found
    return []


def _title_of(session: Json) -> str:
    return printable(session.get("title") or session.get("first_words") or "Untitled session")


def _text_of(message: Json) -> str:
    return "\n".join(str(part["text"]) for part in message["parts"] if part.get("type") == "text")


def _quote(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


async def _pieces(file: anyio.Path) -> AsyncIterator[bytes]:
    async with await file.open("rb") as opened:
        while piece := await opened.read(_PIECE_BYTES):
            yield piece
