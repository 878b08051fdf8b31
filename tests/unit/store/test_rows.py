"""What is stored of a turn comes back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everturn.domain.messages import Message, Role, Text
from everturn.domain.turns import Bar, Usage
from everturn.store.scripts.queries.messages import MessageColumns
from everturn.store.scripts.rows import message_columns, message_of, timeline_json, timeline_of, to_json

_times = st.none() | st.integers(0, 1 << 50)
_usages = st.none() | st.builds(Usage, input_tokens=st.none() | st.integers(0, 9))
_bars = st.lists(
    st.builds(
        Bar,
        kind=st.sampled_from(["model", "tool", "wait", "down"]),
        label=st.text(max_size=5),
        start_at=st.integers(0, 1 << 50),
        end_at=_times,
        state=st.sampled_from(["done", "failed", ""]),
        step=st.none() | st.integers(0, 50),
        call_id=st.none() | st.text(max_size=5),
        usage=_usages,
        first_token_at=_times,
        thought_until=_times,
        missed_cache=st.booleans(),
        finish=st.sampled_from(["", "length"]),
        question=st.text(max_size=5),
        answer=st.text(max_size=5),
    )
).map(tuple)


@given(_bars)
def test_a_timeline_comes_back_as_it_was(bars: tuple[Bar, ...]) -> None:
    assert timeline_of(timeline_json(bars)) == bars


@given(_bars)
def test_a_timeline_that_was_stored_with_names_is_still_read(bars: tuple[Bar, ...]) -> None:
    assert timeline_of(to_json(bars)) == bars


@given(st.lists(st.builds(Text, st.text(max_size=9), st.booleans(), st.sampled_from([(), (3,)])), min_size=1))
def test_a_message_s_texts_come_back_with_their_cuts(texts: list[Text]) -> None:
    turn = "trn_" + "0" * 26
    message = Message(turn.replace("trn", "msg") + "-0001", turn, Role.ASSISTANT, tuple(texts), 5, 1)
    flags, text, packed = message_columns(message)
    row = MessageColumns(0, 0, 1, "assistant", flags, "", 5, text, packed)
    assert message_of(row, turn).parts == message.parts
