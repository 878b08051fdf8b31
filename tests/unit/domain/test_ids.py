"""Ids: they sort by time, name their kind, and invalid ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.domain.errors import InvalidId
from everturn.domain.ids import Ids, check_id, message_id, turn_id_of_message
from everturn.testing import FakeClock


def test_ids_of_one_millisecond_sort_in_the_order_in_which_they_were_made() -> None:
    ids = Ids(FakeClock(), random_bits=lambda bits: (1 << bits) - 1)
    made = [ids.turn() for _ in range(1000)]
    assert sorted(made) == made
    assert len(set(made)) == 1000


def test_a_clock_that_goes_back_does_not_make_ids_go_back() -> None:
    clock = FakeClock(2_000)
    ids = Ids(clock)
    first = ids.session()
    clock.set_back(1.0)
    assert ids.session() > first


def test_a_message_id_names_its_turn() -> None:
    turn_id = Ids(FakeClock()).turn()
    assert turn_id_of_message(message_id(turn_id, 12)) == turn_id
    assert turn_id_of_message(message_id(turn_id, 123_456)) == turn_id


@given(st.text())
def test_an_invalid_id_is_refused(text: str) -> None:
    for refuse in (lambda: check_id(text, "ses"), lambda: turn_id_of_message(text)):
        with pytest.raises(InvalidId) as refused:
            refuse()
        assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ses_" + "u" * 26, "without i, l, o and u"),
        ("ses_" + "0" * 25, "26 characters"),
        ("msg_" + "0" * 26, "then '-' and the number"),
        ("msg_" + "0" * 26 + "-x", "then '-' and the number"),
    ],
)
def test_the_complaint_names_a_rule_that_the_id_does_not_keep(text: str, rule: str) -> None:
    with pytest.raises(InvalidId) as refused:
        check_id(text, "ses") if text.startswith("ses_") else turn_id_of_message(text)
    assert rule in refused.value.message


def test_an_id_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidId):
        check_id(Ids(FakeClock()).turn(), "ses")
