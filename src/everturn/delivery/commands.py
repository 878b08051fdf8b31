"""Commands of a chat, such as ``/new``. Like messages they are inbox rows, handled in order and once each.

A command may run again after a crash, before its row is settled. Those that change a session carry the row's
id as their idempotency key.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec

from everturn.delivery.answers import OWNER_ONLY, Answers, read_number
from everturn.delivery.context import AccountContext
from everturn.delivery.german import answer_in_german, speaks_german
from everturn.delivery.work_commands import run_budget, run_jobs
from everturn.domain.asks import Decision
from everturn.domain.delivery import PRIVATE_KINDS, Chat, Received, SenderRole, session_key
from everturn.domain.errors import Busy, EverturnError, FilesConflict, Gone, NotFound, NothingToDo, Refused
from everturn.domain.sessions import Session, SessionPatch
from everturn.domain.store_values import Request, RetriedTurn
from everturn.domain.turns import TurnState

_LISTED_MAX = 10
_SLASH_MAX = 40
_NOTES_MAX = 10
_NOTE_CHARS_MAX = 300
_LOOKED_AT_MAX = 200  # newest sessions of the owner that are searched for those of the chat
_WORDS_MAX = 60
_LAST_MAX = 20  # newest messages that are searched for the last words: tool calls have none
_NO_SESSION = "This chat has no session yet. Send a message to start one."
_IN_BROWSER_ONLY = "Schedules are made in the browser here."
_OWNER_ONLY = "Only the owner can do this."
_RUNS = "A turn is running. Stop it with /stop, or wait until it ends."
_WAITS = "A turn waits for an answer. Answer it, or stop it with /stop."
_IN_BROWSER = "Nothing was changed. Do it in the browser, which asks about each file."

# "/start" is what Telegram sends when a person opens a chat with a bot, and what is stored in place of a
# pairing code, see ``account.PAIRED``.
_HELPS = frozenset({"help", "start"})
PAIRED = "paired"
_COMMAND = re.compile(r"`/(\w+)")
# Members talk in the owner's session and may not rearrange it; guests have sessions of their own.
_MEMBER = frozenset({"help", "start", "status", "queue", "stop"})
_GUEST = _MEMBER | {"new", "sessions", "switch", "undo", "redo", "retry"}
_ALLOWED: Mapping[SenderRole, frozenset[str]] = MappingProxyType(
    {SenderRole.MEMBER: _MEMBER, SenderRole.GUEST: _GUEST}
)


class ChatCommand(msgspec.Struct, frozen=True):
    name: str
    rest: str  # what follows the name

    @property
    def queued_words(self) -> str:
        """Return the message in ``/queue words``, which is submitted like any other; empty if there is
        none."""
        return self.rest if self.name == "queue" else ""


class Done(msgspec.Struct, frozen=True):
    """What a command did: the text for the chat, and the turn that it started."""

    text: str
    turn_id: str | None = None


class Commands:
    def __init__(self, context: AccountContext, answers: Answers) -> None:
        self._answers = answers
        self._context = context
        self._engine = context.services.engine
        self._store = context.services.store
        self._acts: Mapping[str, Callable[[Received, str], Awaitable[Done]]] = {
            "new": self._new,
            "sessions": self._sessions,
            "switch": self._switch,
            "undo": self._undo,
            "redo": self._redo,
            "retry": self._retry,
            "stop": self._stop,
            "queue": self._queue,
            "approve": self._approve,
            "deny": self._deny,
            "model": self._model,
            "profile": self._profile,
            "memory": self._memory,
            "jobs": self._jobs,
            "schedule": self._schedule,
            "budget": self._budget,
            "skills": self._skills,
            "status": self._status,
        }

    def read(self, text: str) -> ChatCommand | None:
        """Return the command in a message; None for an ordinary message, e.g. one that begins with a path."""
        head, _, rest = text.strip().partition(" ")
        name = head.removeprefix("/").partition("@")[0].lower()
        is_known = name in self._acts or name in _HELPS
        return ChatCommand(name, rest.strip()) if head.startswith("/") and is_known else None

    async def run(self, received: Received, command: ChatCommand, role: SenderRole) -> Done:
        """Run the command and return the answer in the owner's language.

        Raises Retry to be run again later.
        """
        done = await self._run(received, command, role)
        if await speaks_german(self._store.records, received.chat.owner):
            return Done(answer_in_german(done.text), done.turn_id)
        return done

    async def _run(self, received: Received, command: ChatCommand, role: SenderRole) -> Done:
        if role is not SenderRole.OWNER and command.name not in _ALLOWED.get(role, frozenset({"help"})):
            is_answer = command.name in ("approve", "deny")
            return Done(OWNER_ONLY if is_answer else _OWNER_ONLY)
        if command.name in _HELPS:
            return Done(f"You are paired.\n{help_for(role)}" if command.rest == PAIRED else help_for(role))
        try:
            return await self._acts[command.name](received, command.rest)
        except Busy as error:
            return Done(_WAITS if error.facts["state"] == TurnState.WAITING else _RUNS)
        except FilesConflict as error:
            return Done(f"{error.message.removesuffix(' Nothing was changed.')} {_IN_BROWSER}")
        except Refused as error:
            return Done(f"{error.message} {error.hint}".strip())

    # --- sessions ----------------------------------------------------------------------------------

    async def _new(self, received: Received, rest: str) -> Done:
        chat = received.chat
        await self._store.delivery.chats.switch(chat.owner, chat.id, None)
        return Done("The next message starts a new session.")

    async def _sessions(self, received: Received, rest: str) -> Done:
        found = await self._sessions_of(received.chat)
        if not found:
            return Done(_NO_SESSION)
        lines = [
            f"{number}. {_name_of(session)}{' (this one)' * (session.id == received.chat.session_id)}"
            for number, session in list(enumerate(found, start=1))[-_LISTED_MAX:]
        ]
        return Done("\n".join([*lines, "", "`/switch N` goes to one of them."]))

    async def _switch(self, received: Received, rest: str) -> Done:
        chat, found = received.chat, await self._sessions_of(received.chat)
        number = read_number(rest)
        if number is None or not 0 < number <= len(found):
            return Done("Say which one: `/switch N`, with a number that `/sessions` lists.")
        session = found[number - 1]
        await self._store.delivery.chats.switch(chat.owner, chat.id, session.id)
        return Done(f"This chat goes on with: {_name_of(session)}")

    async def _sessions_of(self, chat: Chat) -> list[Session]:
        """Return the chat's sessions, oldest first, so that numbers stay the same."""
        page = await self._store.sessions.list(chat.owner, limit=_LOOKED_AT_MAX)
        key = session_key(chat.profile, chat.place)
        found = [one for one in page.items if one.key == key or one.id == chat.session_id]
        return sorted(found, key=lambda session: (session.created_at, session.id))

    async def _session(self, chat: Chat) -> Session:
        if chat.session_id is not None:
            try:
                return await self._store.sessions.get(chat.owner, chat.session_id)
            except (Gone, NotFound):
                pass  # it was deleted: the chat has none
        raise NothingToDo(_NO_SESSION)

    # --- the conversation --------------------------------------------------------------------------

    async def _undo(self, received: Received, rest: str) -> Done:
        session = await self._session(received.chat)
        await self._engine.undo(session.owner, session.id, _request(received))
        return Done(f"Undone. The conversation ends with: {await self._last_words(session)}")

    async def _redo(self, received: Received, rest: str) -> Done:
        session = await self._session(received.chat)
        await self._engine.redo(session.owner, session.id, _request(received))
        return Done(f"Redone. The conversation ends with: {await self._last_words(session)}")

    async def _last_words(self, session: Session) -> str:
        """Return the last words of the current conversation. The preview may be of a turn that was undone."""
        page = await self._store.transcript.messages(session.owner, session.id, limit=_LAST_MAX)
        spoken = [message.text.strip() for message in page.items]
        return next((" ".join(text.split())[:_WORDS_MAX] for text in reversed(spoken) if text), "(nothing)")

    async def _retry(self, received: Received, rest: str) -> Done:
        session = await self._session(received.chat)
        accepted = await self._engine.retry(session.owner, session.id, RetriedTurn(), _request(received))
        return Done("Asked again.", accepted.turn.id)

    async def _stop(self, received: Received, rest: str) -> Done:
        session = await self._session(received.chat)
        if session.active_turn is None:
            return Done("Nothing is running.")
        if await self._has_stopped_before(received, session.owner, session.active_turn):
            return Done("Stopped.")
        turn = await self._engine.cancel(session.owner, session.active_turn, by=self._context.platform.name)
        if turn.ended_at is None:
            return Done("It is being stopped.")
        chat, outbox = received.chat, self._store.delivery.outbox
        is_told = await outbox.is_asked_here(chat.owner, chat.id, turn.id)
        return Done("" if is_told else "Stopped.")  # the turn's own reply says it

    async def _has_stopped_before(self, received: Received, owner: str, turn_id: str) -> bool:
        """True if the previous turn was stopped after the command was received.

        If the command runs again after a crash, it must not stop the next turn as well.
        """
        turns = self._store.turns
        before = (await turns.get(owner, turn_id)).parent_id
        if before is None:
            return False
        turn = await turns.get(owner, before)
        return turn.state is TurnState.CANCELLED and (turn.ended_at or 0) >= received.received_at

    async def _queue(self, received: Received, rest: str) -> Done:
        """List what waits. With words, the command is a message; see ``queued_words``."""
        session = await self._session(received.chat)
        turns = await self._store.turns.queue(session.owner, session.id)
        lines = [f"{number}. {turn.text[:_WORDS_MAX]}" for number, turn in enumerate(turns, start=1)]
        return Done("\n".join(lines) or "Nothing is queued. `/queue words` queues a message.")

    async def _approve(self, received: Received, rest: str) -> Done:
        return Done(await self._answers.decide(received, rest, Decision.ONCE))

    async def _deny(self, received: Received, rest: str) -> Done:
        return Done(await self._answers.decide(received, rest, Decision.DENY))

    # --- settings ----------------------------------------------------------------------------------

    async def _model(self, received: Received, rest: str) -> Done:
        session = await self._session(received.chat)
        if not rest:
            return Done(f"The model is {session.model or 'the default one'}. `/model NAME` changes it.")
        models = self._context.services.models
        if models is not None:
            try:
                await models.get(rest)
            except EverturnError as error:
                return Done(f"{error.message} {error.hint}".strip())
        await self._engine.change_session(session.owner, session.id, SessionPatch(model=rest))
        return Done(f"This session uses {rest} from now on.")

    async def _profile(self, received: Received, rest: str) -> Done:
        session = await self._session(received.chat)
        name_profiles = self._context.services.profiles
        known = () if name_profiles is None else await name_profiles()
        names = f"The profiles are: {', '.join(known)}." if known else ""
        if not rest:
            return Done(f"The profile is {session.profile or 'default'}. {names}".strip())
        if rest not in known:
            return Done(f"There is no profile {rest[:_WORDS_MAX]!r}. {names}".strip())
        await self._engine.change_session(session.owner, session.id, SessionPatch(profile=rest))
        await self._context.note("session.profile", received, f"{session.id}: {rest}")
        return Done(f"This session uses the profile {rest} from now on.")

    # --- background work ---------------------------------------------------------------------------

    async def _jobs(self, received: Received, rest: str) -> Done:
        return Done(await run_jobs(self._context, received, rest))

    async def _budget(self, received: Received, rest: str) -> Done:
        return Done(await run_budget(self._context, received, rest))

    async def _schedule(self, received: Received, rest: str) -> Done:
        command = self._context.services.schedule
        return Done(_IN_BROWSER_ONLY if command is None else await command(received, rest))

    async def _memory(self, received: Received, rest: str) -> Done:
        """List the newest notes. Not in a group, where everyone would see them."""
        if received.chat.place.kind not in PRIVATE_KINDS:
            return Done(
                "What is remembered is not shown in a group. Ask in a private chat, or open the browser."
            )
        list_notes = self._context.services.notes
        found = [] if list_notes is None else await list_notes(received.chat.owner, _NOTES_MAX + 1)
        lines = [f"- {' '.join(text.split())[:_NOTE_CHARS_MAX]}" for text in found[:_NOTES_MAX]]
        more = "\nThere is more in the browser, under Memory." if len(found) > _NOTES_MAX else ""
        return Done(
            "The newest first:\n" + "\n".join(lines) + more if lines else "Nothing is remembered yet."
        )

    async def _skills(self, received: Received, rest: str) -> Done:
        slash = self._context.services.slash
        chat = received.chat
        found = [] if slash is None else await slash.list(chat.owner, chat.profile, None)
        lines = [f"`/{one.name}` {one.description}".strip() for one in found[:_SLASH_MAX]]
        more = f"\nand {len(found) - _SLASH_MAX} more" if len(found) > _SLASH_MAX else ""
        return Done("\n".join(lines) + more if lines else "There are no skills or prompts yet.")

    async def _status(self, received: Received, rest: str) -> Done:
        session = await self._session(received.chat)
        state = "waits for you" if session.asks else "is running" if session.active_turn else "is done"
        return Done(
            f"{_name_of(session)}\nThe last turn {state}. Queued: {session.queued}. "
            f"Model: {session.model or 'default'}. Profile: {session.profile or 'default'}."
        )


HELP = """Send a message, and it is answered here. Commands:
`/new` start a new session
`/sessions` list this chat's sessions, `/switch N` go to one
`/undo` `/redo` `/retry` the last turn
`/stop` the turn that runs
`/queue words` ask after the turn that runs
`/approve` `/deny` what waits for you
`/model` `/profile` of this session
`/jobs` what runs in the background
`/schedule every day at 8 …` what is sent on its own
`/budget` what may be spent
`/memory` what is remembered
`/skills` skills and prompts that a message can begin with
`/status` what the agent is doing"""


def help_for(role: SenderRole) -> str:
    """List the commands that this person may use."""
    allowed = _ALLOWED.get(role)
    first, *lines = HELP.split("\n")
    shown = [line for line in lines if allowed is None or set(_COMMAND.findall(line)) <= allowed]
    return "\n".join((first, *shown))


def _request(received: Received) -> Request:
    return Request(key=f"inbox:{received.id}")


def _name_of(session: Session) -> str:
    return (session.title or session.first_words or "Untitled")[:_WORDS_MAX]
