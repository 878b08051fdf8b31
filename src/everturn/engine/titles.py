"""Gives a session a title after its first answer, in the background."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from everturn.domain.budgets import OverBudget
from everturn.domain.clock import call_within
from everturn.domain.messages import Message, Role
from everturn.domain.model import Model
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.probe import Moment
from everturn.domain.sessions import Session
from everturn.domain.turns import Turn
from everturn.engine.model_call import plain_request
from everturn.engine.services import TurnServices
from everturn.engine.spending import Spending, ask_within_budget

_SYSTEM = "Write a title of three to six words for the conversation. Only the title, without quotes."
_CHARS_OF_EACH = 600
_TITLE_TOKENS = 40


class Titler:
    def __init__(self, services: TurnServices) -> None:
        self._services = services

    def wants_title(self, session: Session) -> bool:
        return self._services.settings.makes_titles and not session.title and not session.is_title_given

    async def name(self, session: Session, turn: Turn, model: Model, messages: Sequence[Message]) -> None:
        """Make a title after this turn and write it, unless the user has named the session meanwhile."""
        title = await self._title(session, turn, model, messages)
        if not title:
            return
        await self._services.probe.reach(Moment.TITLE_MADE, session.id)
        await self._services.store.sessions.set_title(session.owner, session.id, title)

    async def _title(self, session: Session, turn: Turn, model: Model, messages: Sequence[Message]) -> str:
        settings = self._services.settings
        asked = next((message.text for message in messages if message.role is Role.USER), "")
        answered = next((message.text for message in messages if message.role is Role.ASSISTANT), "")
        if model.abilities.is_small:
            # A small local model is slow and writes poor titles. The user's own words are better.
            return title_from(asked, settings.title_chars_max)
        text = f"User: {asked[:_CHARS_OF_EACH]}\n\nAssistant: {answered[:_CHARS_OF_EACH]}"
        request = plain_request(_SYSTEM, text, _TITLE_TOKENS)
        services = await self._services.for_owner(turn.owner)
        profile = services.settings.profile(turn.profile or session.profile)
        spending = Spending(services, turn, turn.epoch, profile)
        ask = partial(ask_within_budget, self._services, spending, model, request, step=0, name="title")
        await self._services.may_start()
        try:
            said, _ = await call_within(self._services.clock, settings.title_timeout_s, ask)
        except (OverBudget, ModelTrouble, TimeoutError):
            # A title is a convenience: without a model, use the user's own words.
            await spending.settle_broken_off()
            said = asked
        return title_from(said, settings.title_chars_max)


def title_from(text: str, chars_max: int) -> str:
    """One line without quotes and markup, cut at a word."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = line.removeprefix("Title:").strip().strip("\"'`*#“”„«» ").rstrip(".")
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", line).split())
    if len(line) <= chars_max:
        return line
    return line[: chars_max - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"
