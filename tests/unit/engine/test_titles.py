import anyio.lowlevel
import pytest

from everturn.engine.titles import title_from
from everturn.store import Store
from everturn.testing.clock import FakeClock
from everturn.testing.harness import OWNER, open_harness, quiet_settings
from everturn.testing.models import Pause, Say
from everturn.testing.waiting import within


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('"A Cat in the Photo."', "A Cat in the Photo"),
        ("Title: Trip to Rome\n\nmore", "Trip to Rome"),
        ("\n\n**Bold words**", "Bold words"),
        ("", ""),
        ("  spaced   out\twords ", "spaced out words"),
        ("Red\x1b[31m alert\x00 \x9b2J", "Red [31m alert 2J"),
    ],
)
def test_a_title_is_one_clean_line(text, title):
    assert title_from(text, 80) == title


def test_a_long_title_is_cut_at_a_word():
    assert title_from("one two three four", 12) == "one two…"


async def test_a_model_that_takes_too_long_for_a_title_leaves_the_users_words(
    store: Store, clock: FakeClock
) -> None:
    settings = quiet_settings(makes_titles=True, title_timeout_s=20.0)
    slow = [Pause(3600.0), Say("Generated")]
    async with open_harness(store, "hi", slow, clock=clock, settings=settings) as h:  # type: ignore[arg-type]  # a list of steps of several kinds
        session = await h.new_session()
        await h.run(session, "Plan a trip to Rome")
        await clock.someone_sleeps(20.0)
        await clock.advance(20.0)
        with within("the session has a title"):
            while not (now := await h.engine.session(OWNER, session.id)).title:
                await anyio.lowlevel.checkpoint()
        assert now.title == "Plan a trip to Rome"
