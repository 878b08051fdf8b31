"""What is stored of a turn comes back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everturn.domain.turns import Bar, Usage
from everturn.store.rows import timeline_json, timeline_of, to_json

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
    )
).map(tuple)


@given(_bars)
def test_a_timeline_comes_back_as_it_was(bars: tuple[Bar, ...]) -> None:
    assert timeline_of(timeline_json(bars)) == bars


@given(_bars)
def test_a_timeline_that_was_stored_with_names_is_still_read(bars: tuple[Bar, ...]) -> None:
    assert timeline_of(to_json(bars)) == bars
