"""Asks a turn's questions in its chat, and shows there when they were answered (F04).

The whole call is shown before it can be allowed: in the message with the buttons, or as a file before it.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from everturn.delivery.ask_words import call_text, fence, format_answer, title_of
from everturn.delivery.bell import Bell, run_when_rung
from everturn.delivery.context import AccountContext
from everturn.delivery.german import answer_in_german, speaks_german, title_in_german
from everturn.delivery.parts import render_parts
from everturn.delivery.quotes import quote_words
from everturn.domain.asks import (
    Ask,
    AskTopic,
    Decision,
    InstructionsAnswer,
    LimitAnswer,
    SignInAnswer,
)
from everturn.domain.delivery import AnswerDue, AskDue, Button, Chat, ChatKind, NewPart
from everturn.domain.errors import Refused
from everturn.domain.store_values import FileKind

_BATCH_MAX = 20
_LABEL_CHARS_MAX = 40
_CODE_CHARS = 4
_log = logging.getLogger("everturn.delivery")


class Questions:
    def __init__(self, context: AccountContext) -> None:
        self._context = context
        self._outbox = context.delivery.outbox
        self.bell = Bell(context.clock)

    async def run(self) -> None:
        poll_s = self._context.settings.poll_s
        await run_when_rung(self.bell, self.record_due, poll_s=poll_s, account=self._context.account)

    async def record_due(self) -> int:
        """Record the questions and answers that are due; return how many messages were recorded."""
        count = 0
        for due in await self._outbox.asks_due(self._context.account, limit=_BATCH_MAX):
            count += await self._ask(due)
        for answered in await self._outbox.answers_due(self._context.account, limit=_BATCH_MAX):
            parts = await self._answer_parts(answered)
            age_max_ms = self._context.age_max_ms
            count += await self._outbox.record_answer(answered, parts, age_max_ms=age_max_ms)
        if count:
            self._context.outgoing.ring()
        return count

    async def _ask(self, due: AskDue) -> bool:
        try:
            parts, words = await self._question_parts(due), await self._word_parts(due)
            age_max_ms = self._context.age_max_ms
            return await self._outbox.record_question(due, parts, age_max_ms=age_max_ms, words=words)
        except Refused as error:  # its session was purged meanwhile
            _log.info("account %s: %s is not asked: %s", self._context.account, due.ask.id, error)
            return False

    async def _word_parts(self, due: AskDue) -> Sequence[NewPart]:
        """What the user wrote elsewhere: without it the question would come out of nowhere."""
        if due.asked is None or due.chat.place.kind in (ChatKind.MAIL, ChatKind.HOOK):
            return []  # there each message is a whole mail or post: the answer quotes the words
        say = answer_in_german if await self._speaks_german(due.chat) else str
        return render_parts(self._context.platform, quote_words(due.asked, say))

    async def _question_parts(self, due: AskDue) -> list[NewPart]:
        ask, has_files = due.ask, self._context.platform.features.files
        call, is_german = call_text(ask), await self._speaks_german(due.chat)
        whole = self._render_question(ask, call, is_whole=True, is_german=is_german)
        if len(whole) == 1:
            return whole
        if call and has_files:
            file = NewPart(file_id=await self._store_call(due, call))
            question = self._render_question(ask, "", is_whole=True, is_german=is_german)
            return [file, *question]
        return self._render_question(ask, "", is_whole=not call, is_german=is_german)

    def _render_question(self, ask: Ask, call: str, *, is_whole: bool, is_german: bool) -> list[NewPart]:
        """Return the question, with the buttons below its last part."""
        has_buttons = self._context.platform.features.buttons
        say = answer_in_german if is_german else str
        title = title_in_german(title_of(ask)) if is_german else title_of(ask)
        lines = [f"**{title}**"] if title else []
        if call:
            lines.append(fence(call))
        if ask.text:
            lines.append(ask.text if ask.topic is AskTopic.QUESTION else say(_reason(ask)))
        if not is_whole:
            lines.append(say("*The whole call does not fit here. Open it in the browser to allow it.*"))
        options = list_options(ask, is_whole=is_whole)
        if not has_buttons:
            lines.append(say(_describe_commands(ask, options, self._link(ask))))
        parts = list(render_parts(self._context.platform, "\n\n".join(lines)))
        if has_buttons and parts:
            is_ours = ask.topic is not AskTopic.QUESTION  # otherwise the labels are the agent's words
            labels = [(at, say(label) if is_ours else label) for at, label in options]
            buttons = [Button(label, press_data(ask, at)) for at, label in labels]
            if link := self._link(ask):
                buttons.append(Button(say("Open"), url=link))
            parts[-1] = msgspec.structs.replace(parts[-1], buttons=tuple(buttons))
        return parts

    async def _speaks_german(self, chat: Chat) -> bool:
        return await speaks_german(self._context.services.store.records, chat.owner)

    def _link(self, ask: Ask) -> str:
        """Return the link to the ask on the page; empty if the page's address is not known."""
        url = self._context.services.page_url
        return f"{url.rstrip('/')}/#/s/{ask.session_id}" if url else ""

    async def _store_call(self, due: AskDue, call: str) -> str:
        files = self._context.services.store.files
        with tempfile.TemporaryDirectory(prefix="everturn-call-") as folder:
            path = Path(folder, "call")
            await anyio.Path(path).write_text(call, encoding="utf-8")
            name = f"{due.ask.name or 'call'}.txt"
            session_id = due.ask.session_id
            stored = await files.put(
                due.chat.owner, name, "text/plain", path, kind=FileKind.UPLOAD, session_id=session_id
            )
        return stored.id

    async def _answer_parts(self, due: AnswerDue) -> Sequence[NewPart]:
        """Return the edit that shortens the question to one line; nothing if the platform cannot edit."""
        message = due.question[-1].external_id if due.question else None
        if not self._context.platform.features.edits or message is None:
            return []
        text = format_answer(due.ask)
        if await self._speaks_german(due.chat):
            text = answer_in_german(text)
        rendered = render_parts(self._context.platform, text)
        return [msgspec.structs.replace(part, replaces=message) for part in rendered[:1]]


def answers_of(ask: Ask) -> list[tuple[str, str]]:
    """Label and answer of each choice in a chat. Lasting decisions are made in the browser."""
    if ask.topic is AskTopic.APPROVAL:
        return [("Allow once", Decision.ONCE.value), ("Deny", Decision.DENY.value)]
    if ask.topic in (AskTopic.LIMIT, AskTopic.REPEAT):
        return [("Continue", LimitAnswer.CONTINUE.value), ("Stop", LimitAnswer.STOP.value)]
    if ask.topic is AskTopic.BUDGET:
        return [(choice.capitalize(), choice) for choice in ask.choices]
    if ask.topic is AskTopic.INSTRUCTIONS:  # the text itself is shown in the browser only
        found = (InstructionsAnswer.LEAVE_OUT, InstructionsAnswer.NOT_NOW)
        return [(answer.value.capitalize(), answer.value) for answer in found]
    if ask.topic is AskTopic.SIGN_IN:  # the sign-in itself is made in the browser
        return [(SignInAnswer.SKIP.value.capitalize(), SignInAnswer.SKIP.value)]
    return [(choice[:_LABEL_CHARS_MAX], choice) for choice in ask.choices]


def list_options(ask: Ask, *, is_whole: bool) -> list[tuple[int, str]]:
    """Number and label of the answers. Without the whole call, it can only be denied."""
    found = list(enumerate(answers_of(ask)))
    if not is_whole and ask.topic is AskTopic.DOUBT:
        found = []
    return [(at, label) for at, (label, answer) in found if is_whole or answer != Decision.ONCE]


def press_data(ask: Ask, at: int) -> str:
    return f"ask:{ask.id}:{at}"


def code_of(ask: Ask) -> str:
    """The code that names the ask in a command. Not its place in a list, which could change before it is
    answered."""
    return ask.id[-_CODE_CHARS:].lower()


def _reason(ask: Ask) -> str:
    """Return why the user is asked. "It deletes …" alone could be read as already done."""
    if ask.topic is not AskTopic.APPROVAL:
        return ask.text
    return f"Needs approval: {ask.text[:1].lower()}{ask.text[1:]}" if ask.text.startswith("It ") else ask.text


def _describe_commands(ask: Ask, options: Sequence[tuple[int, str]], link: str) -> str:
    """Return how to answer without buttons."""
    page = f"[Open]({link})" if link else ""
    if ask.topic is AskTopic.APPROVAL:
        names = {"Allow once": "/approve", "Deny": "/deny"}
        typed = " or ".join(f"`{names[label]} {code_of(ask)}`" for _, label in options)
        return f"Answer with {typed}. {page}".strip()
    if ask.topic is AskTopic.QUESTION:
        lines = [f"{number}. {label}" for number, (_, label) in enumerate(options, start=1)]
        return "\n".join([*lines, "Your next message is the answer."])
    return f"Answer it in the browser. {page}".strip()
