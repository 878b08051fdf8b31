"""Amounts, periods and what one call may cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.domain.budgets import (
    Budget,
    BudgetKey,
    BudgetLimit,
    BudgetScope,
    CallEstimate,
    Spent,
    Unit,
    describe_amount,
    describe_budget,
    describe_shortage,
    period_at,
    spent_of,
    to_micros,
)
from everturn.domain.errors import Invalid
from everturn.domain.turns import Usage

ZONES = ["UTC", "Europe/Vienna", "America/New_York", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe"]


def limit(scope: BudgetScope, timezone: str = "UTC", amount: int = 5_000_000) -> BudgetLimit:
    return BudgetLimit(BudgetKey(scope, Unit.USD), amount, timezone)


def ms(text: str, zone: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("zone", "now", "start", "end", "hours"),
    [
        ("Europe/Vienna", "2026-03-29T12:00", "2026-03-29T00:00", "2026-03-30T00:00", 23),
        ("Europe/Vienna", "2026-10-25T23:59", "2026-10-25T00:00", "2026-10-26T00:00", 25),
        ("Asia/Tokyo", "2026-01-01T00:00", "2026-01-01T00:00", "2026-01-02T00:00", 24),
    ],
)
def test_a_day_lasts_from_midnight_to_midnight(zone, now, start, end, hours):
    period = period_at(limit(BudgetScope.DAY, zone), ms(now, zone))
    assert (period.start, period.end) == (ms(start, zone), ms(end, zone))
    assert (period.end - period.start) / 3_600_000 == hours


@pytest.mark.parametrize(
    ("now", "start", "end"),
    [("2026-12-31T23:59", "2026-12-01", "2027-01-01"), ("2028-02-29T00:00", "2028-02-01", "2028-03-01")],
)
def test_a_month_begins_on_its_first(now, start, end):
    period = period_at(limit(BudgetScope.MONTH, "America/New_York"), ms(now, "America/New_York"))
    assert (period.start, period.end) == (ms(start, "America/New_York"), ms(end, "America/New_York"))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(ZONES), st.integers(0, 3 * 366 * 24 * 4))
def test_the_local_date_is_the_same_during_a_period_and_another_outside(zone, quarters):
    moment = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=15 * quarters)
    now = round(moment.timestamp() * 1000)
    for scope, form in ((BudgetScope.DAY, "%Y-%m-%d"), (BudgetScope.MONTH, "%Y-%m")):
        period = period_at(limit(scope, zone), now)

        def local(at: int, form: str = form) -> str:
            return datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).strftime(form)

        assert period.start <= now < period.end
        assert local(period.start) == local(now) == local(period.end - 1)
        assert local(period.start - 1) < local(now) < local(period.end)


def test_sessions_and_runs_do_not_turn_over_by_themselves():
    session = period_at(limit(BudgetScope.SESSION), 5)
    run = period_at(limit(BudgetScope.SCHEDULE), 5, run_at=3)
    assert (session.start, session.end, run.start, run.end) == (0, None, 3, None)


def test_a_time_zone_that_does_not_exist_is_refused():
    with pytest.raises(Invalid, match="There is no time zone"):
        period_at(limit(BudgetScope.DAY, "Mars/Olympus"), 0)


def test_a_period_never_gives_way_to_an_earlier_one():
    budget = Budget("bgt_1", "ada", limit(BudgetScope.DAY), 100, extra=1, spent=2, reserved=3)
    assert budget.at(99) is budget
    later = budget.at(101)
    assert (later.period_start, later.extra, later.spent, later.reserved) == (101, 0, 0, 0)


@given(
    input_tokens=st.integers(0, 10**6),
    smallest=st.integers(1, 5_000),
    more=st.integers(0, 100_000),
    input_price=st.integers(0, 30),
    output_price=st.integers(0, 150),
    room=st.integers(-(10**6), 10**8),
)
def test_what_is_granted_fits_and_one_token_more_would_not(
    input_tokens, smallest, more, input_price, output_price, room
):
    def cost(output: int) -> int:
        return input_tokens * input_price + output * output_price

    largest = smallest + more
    estimate = CallEstimate(input_tokens, largest, smallest, cost(largest), cost(smallest))
    for unit, price in ((Unit.USD, cost), (Unit.TOKENS, lambda output: input_tokens + output)):
        granted = estimate.output_within(unit, room)
        if granted is None:
            assert price(smallest) > room
            assert estimate.least(unit) == price(smallest)
        else:
            assert smallest <= granted <= largest
            assert estimate.amount(unit, granted) == price(granted) <= room
            assert granted == largest or price(granted + 1) > room


def test_money_does_not_bound_a_model_without_a_known_price():
    estimate = CallEstimate(1000, 500, 100)
    assert estimate.output_within(Unit.USD, 0) == 500
    assert estimate.amount(Unit.USD, 500) == 0
    assert estimate.output_within(Unit.TOKENS, 1000) is None


def test_usage_becomes_an_amount():
    assert spent_of(Usage(10, 5, cost_usd=0.0000001)) == Spent(15, 1)
    assert spent_of(Usage(10, 5)) == Spent(15, None)
    assert spent_of(Usage()) is None
    assert Spent(15, None).unpriced_tokens(Unit.USD) == 15
    assert Spent(15, 3).unpriced_tokens(Unit.USD) == Spent(15, None).unpriced_tokens(Unit.TOKENS) == 0
    assert to_micros(0.1 + 0.2) == 300_000


def test_amounts_in_words():
    assert describe_amount(Unit.USD, 5_000_000) == "5.00 USD"
    assert describe_amount(Unit.USD, 1_234_567) == "1.234567 USD"
    assert describe_amount(Unit.TOKENS, 1_000_000) == "1,000,000 tokens"
    month = Budget("bgt_1", "ada", limit(BudgetScope.MONTH), 0)
    assert describe_budget(month) == "This month's budget of 5.00 USD"
    raised = msgspec.structs.replace(month, extra=5_000_000, spent=9_000_000)
    assert describe_shortage(raised) == (
        "This month's budget of 10.00 USD does not cover the next model call: 1.00 USD left."
    )
