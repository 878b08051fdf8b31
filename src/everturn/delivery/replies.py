"""Records the answers of turns as parts for their chats, once each, also after a crash."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
import msgspec

from everturn.delivery.activity_line import activity_line
from everturn.delivery.bell import Bell, run_when_rung
from everturn.delivery.context import AccountContext
from everturn.delivery.german import answer_in_german, speaks_german
from everturn.delivery.made_files import FileParts
from everturn.delivery.parts import render_parts
from everturn.delivery.quotes import quote_words
from everturn.domain.delivery import ChatKind, NewPart, ReplyDue
from everturn.domain.errors import Refused, Retry
from everturn.domain.probe import Moment
from everturn.domain.turns import TurnState

_BATCH_MAX = 20
_CHARS_MAX = 20_000  # of an answer; a longer one would fill a chat, which takes about a message per second
_FILE_NAME = "answer.md"
Say = Callable[[str], str]
_log = logging.getLogger("everturn.delivery")


class Replies:
    def __init__(self, context: AccountContext) -> None:
        self._context = context
        self._account = context.account
        self._outbox = context.delivery.outbox
        self._files = FileParts(context)
        self.bell = Bell(context.clock)

    async def run(self) -> None:
        poll_s = self._context.settings.poll_s
        await run_when_rung(self.bell, self.record_due, poll_s=poll_s, account=self._account)

    async def record_due(self) -> int:
        """Record the replies that are due; return how many were recorded now. Those of different chats are
        recorded at once, so that they share a commit."""
        by_chat: dict[str, list[ReplyDue]] = {}
        for due in await self._outbox.replies_due(self._account, limit=_BATCH_MAX):
            by_chat.setdefault(due.chat.id, []).append(due)
        recorded: list[str] = []
        failures: list[Retry] = []
        async with anyio.create_task_group() as group:
            for chat_id, dues in by_chat.items():
                group.start_soon(self._record_chat, dues, recorded, failures, name=f"replies to {chat_id}")
        if failures:
            raise failures[0]
        return len(recorded)

    async def _record_chat(self, dues: list[ReplyDue], recorded: list[str], failures: list[Retry]) -> None:
        """Record these replies to one chat in their order, until the store is away."""
        for due in dues:
            try:
                if await self._record(due):
                    recorded.append(due.turn_id)
                    self._context.outgoing.ring()
            except Retry as error:
                failures.append(error)
                return
            except Refused as error:  # its session was purged meanwhile
                _log.info("account %s: no reply to %s: %s", self._account, due.turn_id, error)

    async def _record(self, due: ReplyDue) -> bool:
        is_german = await speaks_german(self._context.services.store.records, due.chat.owner)
        say = answer_in_german if is_german else str
        parts = [*await self._answer_parts(due, say), *await self._files.parts(due)]
        parts = self._replace_live(due, parts, say)
        age_max_ms = self._context.age_max_ms
        is_new = await self._outbox.record_reply(due, parts, age_max_ms=age_max_ms)
        await self._context.services.probe.reach(Moment.REPLY_RECORDED, due.turn_id)
        return is_new

    async def _answer_parts(self, due: ReplyDue, say: Say) -> list[NewPart]:
        """Return the answer as messages; if there were too many, its beginning and the whole as a file."""
        text = reply_text(due, say)
        beginning = self._render(text[:_CHARS_MAX])
        if len(text) <= _CHARS_MAX:
            return beginning
        if len(beginning) == 1 or not self._context.platform.features.files:
            return self._render(text)
        file_id = await self._files.store_text(due, _FILE_NAME, text)
        return [
            beginning[0],
            *self._render(say(f"*The whole answer is in {_FILE_NAME}.*")),
            NewPart(file_id=file_id),
        ]

    def _render(self, markdown: str) -> list[NewPart]:
        return list(render_parts(self._context.platform, markdown))

    def _replace_live(self, due: ReplyDue, parts: list[NewPart], say: Say) -> list[NewPart]:
        """Edit the answer's first part into the message that showed the turn. If other messages followed
        it, the answer is sent below them: people do not look for changes further up."""
        if due.live_id is None:
            return parts
        if due.is_live_last or not parts:
            line, *rest = parts or self._render(say("*Stopped.*"))
        else:
            line, rest = self._render(say("*The answer is below.*"))[0], parts
        return [msgspec.structs.replace(line, replaces=due.live_id), *rest]


def reply_text(due: ReplyDue, say: Say = str) -> str:
    """What the chat is told about a turn that has ended, in Markdown. Empty for a turn that was asked for
    elsewhere and stopped before it said anything. ``say``: puts our own words into the chat's language."""
    if due.asked is not None and due.state is TurnState.CANCELLED and not due.answer.strip():
        return ""
    notice = ""
    if due.state is TurnState.CANCELLED:
        notice = say("*Stopped.*")
    elif due.failure is not None:
        notice = f"*{due.failure.message}*"
    elif not due.answer.strip():
        notice = say("*The answer is empty.*")
    quote = "" if due.asked is None else quote_words(due.asked, say)
    # A program reads what a webhook posts.
    activity = "" if due.chat.place.kind is ChatKind.HOOK else activity_line(due.activity, say)
    return "\n\n".join(text for text in (quote, activity, due.answer, notice) if text.strip())
