"""Texts from outside that would steer the agent: AGENTS.md, the skills of a project, and the tool
descriptions of MCP servers. They are used only after the user has read them and agreed."""

from __future__ import annotations

from everturn.domain import events as ev
from everturn.domain.asks import AskTopic, InstructionsAnswer
from everturn.domain.store_values import Claim
from everturn.engine.agents import instructions_of
from everturn.engine.calls import AskWording, NewAsk, new_ask
from everturn.engine.services import TurnServices

_TOPIC = AskTopic.INSTRUCTIONS
_CHOICES = tuple(InstructionsAnswer)
_DECIDING = (InstructionsAnswer.USE, InstructionsAnswer.LEAVE_OUT)


class OutsideTexts:
    """Asks about them before a turn uses them."""

    def __init__(self, services: TurnServices, claim: Claim) -> None:
        self._services = services
        self._claim = claim

    async def question(self) -> NewAsk | None:
        """What to ask before the turn can go on; None if there is nothing, or it was decided.

        An answer to it is in the turn's journal, so that it is kept exactly once however often the turn
        is taken up again.
        """
        if self._claim.session.is_delegate:
            return None  # it uses what its parent's user has agreed to, and asks about nothing else
        return await self._about_folder() or await self._about_skills() or await self._about_servers()

    async def _about_folder(self) -> NewAsk | None:
        session, toolbox = self._claim.session, self._services.toolbox
        told = await instructions_of(self._services, session)
        if not told.is_there or told.is_trusted or told.is_declined:
            return None
        answer = await self._find_answer(told.digest)
        if answer is None:
            begin = "The instructions (AGENTS.md) of this folder have changed." if told.is_changed else ""
            begin = begin or "This folder has instructions for agents (AGENTS.md)."
            end = " The file is longer: only this beginning is used." if told.is_cut else ""
            return self._ask(f"{begin} Use them?{end}", told.preview, told.digest)
        if answer in _DECIDING:
            workspace = await toolbox.workspace(session.owner, session.id, session.project)
            await toolbox.decide_instructions(
                session.owner, workspace, told.digest, use=answer == InstructionsAnswer.USE
            )
        return None

    async def _about_skills(self) -> NewAsk | None:
        session, services = self._claim.session, self._services
        if services.skills is None or session.project is None:
            return None
        workspace = await services.toolbox.workspace(session.owner, session.id, session.project)
        for told in await services.skills.list_untrusted(session.owner, workspace):
            answer = await self._find_answer(told.digest)
            if answer is None:
                return self._ask(told.question, told.text, told.digest)
            if answer in _DECIDING:
                use = answer == InstructionsAnswer.USE
                await services.skills.decide_untrusted(session.owner, workspace, told.digest, use=use)
        return None

    async def _about_servers(self) -> NewAsk | None:
        session, turn, toolbox = self._claim.session, self._claim.turn, self._services.toolbox
        for told in await toolbox.list_untrusted(session.owner, session.id, turn.profile or session.profile):
            answer = await self._find_answer(told.digest)
            if answer is None:
                return self._ask(told.question, told.text, told.digest)
            if answer in _DECIDING:
                await toolbox.decide_untrusted(
                    session.owner, session.id, told.name, told.digest, use=answer == InstructionsAnswer.USE
                )
        return None

    def _ask(self, question: str, about: str, digest: str) -> NewAsk:
        text = f"{question}\n\n{about}"
        ask = new_ask(self._services, self._claim.turn, AskWording(_TOPIC, text, _CHOICES, digest))
        return NewAsk(ask, ev.QuestionAsked(ask.id, text, _CHOICES, _TOPIC))

    async def _find_answer(self, digest: str) -> str | None:
        """The answer that was given in this turn about this very content."""
        for event in reversed(self._claim.journal):
            payload = event.payload
            if isinstance(payload, ev.QuestionAnswered) and payload.topic == _TOPIC:
                ask = await self._services.store.asks.get(self._claim.turn.owner, payload.ask_id)
                if ask.digest == digest:
                    return payload.answer
        return None
