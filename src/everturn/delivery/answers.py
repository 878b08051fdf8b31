"""Takes answers from a chat: presses of buttons, ``/approve`` and ``/deny``, and words (F04)."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.delivery.context import AccountContext
from everturn.delivery.german import answer_in_german, speaks_german
from everturn.delivery.questions import answers_of, code_of
from everturn.domain.asks import Ask, AskTopic, Decision, by_chat
from everturn.domain.audit import describe_answer, describe_decision
from everturn.domain.delivery import Received, SenderRole, Update
from everturn.domain.errors import Gone, NotFound, Refused

_DIGITS_MAX = 9
OWNER_ONLY = "Only the owner can answer this."
_GONE = "There is nothing left to answer."
_ANSWERED = "It was answered already."
_NOT_SHOWN = "It was not shown here in full. Answer it in the browser."


class Answers:
    def __init__(self, context: AccountContext) -> None:
        self._context = context
        self._asks = context.services.store.asks
        self._by = by_chat(context.platform.name)

    async def press(self, received: Received, update: Update) -> str:
        """Treat a button press as an answer; return what to tell the chat, if anything."""
        said = await self._press(received, update)
        is_german = bool(said) and await speaks_german(
            self._context.services.store.records, received.chat.owner
        )
        return answer_in_german(said) if is_german else said

    async def _press(self, received: Received, update: Update) -> str:
        if update.role is not SenderRole.OWNER:  # guard: f04
            return OWNER_ONLY
        word, _, rest = update.press.partition(":")
        ask_id, _, at = rest.partition(":")
        number = read_number(at)
        if word != "ask" or number is None:
            return ""
        try:
            ask = await self._asks.get(received.chat.owner, ask_id)
        except (NotFound, Gone):
            return _GONE
        answers = answers_of(ask)
        if number >= len(answers):
            return ""
        return await self._answer(received, ask, answers[number][1], is_named=True)

    async def decide(self, received: Received, code: str, decision: Decision) -> str:
        """Run ``/approve`` or ``/deny``. The code can be omitted if only one approval waits."""
        # With a code it may belong to a schedule's run, which is in another session.
        asks = await self._asks.open(received.chat.owner) if code else await self._open(received)
        found = [ask for ask in asks if ask.topic is AskTopic.APPROVAL]
        if code:
            found = [ask for ask in found if code_of(ask) == code.lower()]
        if not found:
            return _GONE
        if len(found) > 1:
            codes = ", ".join(code_of(ask) for ask in found)
            return f"Several wait. Say which one: {codes}."
        return await self._answer(received, found[0], decision.value, is_named=bool(code))

    async def take_words(self, received: Received, update: Update) -> str | None:
        """Take the message as the answer if the agent has asked in this chat; return the id of the turn that
        gets it."""
        is_own = update.role is SenderRole.OWNER and not update.forwarded_from
        if not is_own or update.files or not update.text.strip():
            return None
        for ask in await self._open(received):
            if ask.topic is AskTopic.QUESTION and await self._was_shown(received, ask, is_named=False):
                try:
                    await self._context.services.engine.answer(
                        received.chat.owner, ask.id, _read_choice(ask.choices, update.text), by=self._by
                    )
                except Refused:
                    continue  # for example answered elsewhere: treat this as an ordinary message
                return ask.turn_id
        return None

    async def _answer(self, received: Received, ask: Ask, answer: str, *, is_named: bool) -> str:
        is_harmless = ask.topic is AskTopic.APPROVAL and answer == Decision.DENY
        if not is_harmless and not await self._was_shown(received, ask, is_named=is_named):  # guard: f04
            return _NOT_SHOWN
        if ask.answer is not None and ask.answer != answer:
            return _ANSWERED
        try:
            answered = await self._context.services.engine.answer(
                received.chat.owner, ask.id, answer, by=self._by
            )
        except Refused as error:
            return f"{error.message} {error.hint}".strip()
        if ask.topic is not AskTopic.QUESTION:
            describe = describe_answer if ask.topic is AskTopic.APPROVAL else describe_decision
            await self._context.note("approval", received, describe(answered, answer))
        return ""

    async def _was_shown(self, received: Received, ask: Ask, *, is_named: bool) -> bool:
        """True if the question was in this chat before this was written. ``is_named``: the answer names it
        by its button or code, which are in its last part; the platform's receipt for that part may come
        after the answer."""
        chat = received.chat
        question = await self._context.delivery.outbox.find(chat.owner, chat.id, f"ask:{ask.id}")
        if is_named:
            return bool(question) and all(part.external_id is not None for part in question[:-1])
        return bool(question) and all(
            part.external_id is not None and part.changed_at <= received.received_at for part in question
        )

    async def _open(self, received: Received) -> Sequence[Ask]:
        chat = received.chat
        return [] if chat.session_id is None else await self._asks.open(chat.owner, chat.session_id)


def _read_choice(choices: Sequence[str], text: str) -> str:
    """Return the choice with this number, or the words themselves."""
    number = read_number(text.strip().removesuffix("."))
    return text if number is None or not 0 < number <= len(choices) else choices[number - 1]


def read_number(text: str) -> int | None:
    """Return the number that was typed, or None. Python refuses to parse thousands of digits."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else None
