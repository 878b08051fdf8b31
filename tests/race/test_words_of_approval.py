"""An approval takes only the words it offered: no other word lets a call run, or lets it run further."""

from pathlib import Path

import pytest

from everturn.domain.errors import Invalid
from everturn.domain.tool import Ruling, Verdict
from everturn.domain.turns import TurnState
from everturn.store import Store
from everturn.testing import CallTool, CountingTool, FakeClock, count_effects
from everturn.testing.harness import OWNER, open_harness

pytestmark = pytest.mark.anyio


def _only_once(call: object, spec: object) -> Ruling:
    return Ruling(Verdict.ASK, "It spends money.", "pay", options=("once", "deny"))  # type: ignore[arg-type]  # plain words, as a plug-in may give them


@pytest.mark.parametrize("word", ["no", "denied", "reject", "always", "ONCE", "expired"])
async def test_c02_a_word_that_was_not_offered_allows_nothing(
    store: Store, clock: FakeClock, tmp_path: Path, word: str
) -> None:
    pay = CountingTool("pay", tmp_path / "effects")
    async with open_harness(
        store, [CallTool("pay")], "I see.", tools=[pay], rules={"pay": _only_once}, clock=clock
    ) as h:
        session = await h.new_session()
        accepted = await h.send(session)
        assert (await h.settled(accepted.turn.id)).state is TurnState.WAITING
        ask = await h.ask(session)
        with pytest.raises(Invalid, match="not offered"):
            await h.engine.answer(OWNER, ask.id, word, by="a client")
        assert (await h.turn(accepted.turn.id)).state is TurnState.WAITING
        assert (await h.ask(session)).answer is None, "it can still be answered"
        await h.answer(session, "deny")
        assert not count_effects(tmp_path / "effects")
