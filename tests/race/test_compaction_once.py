"""A compaction that is asked for with a version happens for that version, and once."""

import pytest

from everturn.domain.errors import Stale
from everturn.domain.store_values import Request
from everturn.domain.turns import TurnKind
from everturn.store import Store
from everturn.testing import FakeClock
from everturn.testing.harness import OWNER, open_harness

pytestmark = pytest.mark.anyio


async def test_a13_a_compaction_is_refused_when_the_session_has_moved_on(
    store: Store, clock: FakeClock
) -> None:
    async with open_harness(store, "one", "two", "In short.", "In short.", clock=clock) as h:
        session = await h.new_session()
        await h.settled((await h.send(session)).turn.id)
        seen = await h.engine.session(OWNER, session.id)
        await h.settled((await h.send(session)).turn.id)
        with pytest.raises(Stale):
            await h.engine.compact(OWNER, session.id, request=Request(version=seen.version))
        now = await h.engine.session(OWNER, session.id)
        accepted = await h.engine.compact(OWNER, session.id, request=Request(version=now.version))
        assert accepted.turn.kind is TurnKind.COMPACTION
        await h.settled(accepted.turn.id)
        with pytest.raises(Stale):  # the same request once more
            await h.engine.compact(OWNER, session.id, request=Request(version=now.version))
