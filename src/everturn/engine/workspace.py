"""The workspace's own instructions (AGENTS.md): used only after the user has seen and trusted them."""

from __future__ import annotations

from everturn.domain import events as ev
from everturn.domain.storing import Claim
from everturn.engine.calls import Question, new_ask
from everturn.engine.gear import Gear
from everturn.engine.prefix import instructions_of

TOPIC = "instructions"
USE = "use them"
LEAVE = "leave them out"
_PREVIEW_CHARS = 4_000


class Workspace:
    def __init__(self, gear: Gear, claim: Claim) -> None:
        self._gear = gear
        self._claim = claim

    async def question(self) -> Question | None:
        """What to ask before the turn can go on; None if there is nothing, or it was decided.

        An answer to it is in the turn's journal, so that it is kept exactly once however often the turn
        is taken up again.
        """
        session = self._claim.session
        told = await instructions_of(self._gear, session)
        if not told.is_there or told.is_trusted or told.is_declined:
            return None
        answer = await self._answered(told.digest)
        if answer is not None:
            workspace = await self._gear.toolbox.workspace(session.owner, session.id, session.project)
            await self._gear.toolbox.decide_instructions(
                session.owner, workspace, told.digest, use=answer == USE
            )
            return None
        begin = "The instructions (AGENTS.md) of this folder have changed." if told.is_changed else ""
        text = (
            f"{begin or 'This folder has instructions for agents (AGENTS.md).'} Use them?\n\n"
            f"{told.preview[:_PREVIEW_CHARS]}"
        )
        ask = new_ask(self._gear, self._claim.turn, TOPIC, text, (USE, LEAVE), digest=told.digest)
        return Question(ask, ev.QuestionAsked(ask.id, text, (USE, LEAVE), TOPIC))

    async def _answered(self, digest: str) -> str | None:
        """The answer that was given in this turn about this very content."""
        for event in reversed(self._claim.journal):
            payload = event.payload
            if isinstance(payload, ev.QuestionAnswered) and payload.topic == TOPIC:
                ask = await self._gear.store.asks.get(self._claim.turn.owner, payload.ask_id)
                if ask.digest == digest:
                    return payload.answer
        return None
