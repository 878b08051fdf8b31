"""Budgets as values: what may be spent, in which period, and what one model call may cost.

Amounts are whole numbers: millionths of a dollar, or tokens. Pure: no clock, no store.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from everturn.domain.errors import Invalid, Refused
from everturn.domain.events import Payload
from everturn.domain.timezones import find_zone
from everturn.domain.turns import Usage, WriterPosition

MICROS = 1_000_000  # of a dollar
AMOUNT_MAX = 10**15
NO_PERIOD = 0  # start of the only period of a budget that has no periods


class BudgetScope(StrEnum):
    """What a budget bounds."""

    SESSION = "session"  # all turns of one session
    DAY = "day"  # of its owner, from midnight to midnight in its time zone
    MONTH = "month"  # of its owner, from the first of the month
    SCHEDULE = "schedule"  # each run of one schedule


# Budgets of these scopes name a session or a schedule; the others are about their owner.
WITH_SUBJECT = frozenset({BudgetScope.SESSION, BudgetScope.SCHEDULE})


class Unit(StrEnum):
    USD = "usd"  # stored in millionths
    TOKENS = "tokens"


class BudgetKey(msgspec.Struct, frozen=True):
    """Unique per owner. ``subject``: the id of the session or schedule."""

    scope: BudgetScope
    unit: Unit
    subject: str = ""


class BudgetLimit(msgspec.Struct, frozen=True):
    """A budget as its owner sets it. ``timezone``: where its days and months begin."""

    key: BudgetKey
    amount: int
    timezone: str = "UTC"


class Budget(msgspec.Struct, frozen=True):
    """A budget and what was spent of it in its period.

    ``extra`` was allowed on top, for this period only. ``spent`` includes ``estimated``: calls whose usage
    was never reported, e.g. because the server stopped. ``reserved``: of calls that are under way.
    ``unpriced_tokens`` were used by models whose prices are not known: no amount of money bounds them.
    ``is_default``: it comes from the settings, not from its owner.
    """

    id: str
    owner: str
    limit: BudgetLimit
    period_start: int
    extra: int = 0
    spent: int = 0
    estimated: int = 0
    reserved: int = 0
    unpriced_tokens: int = 0
    is_default: bool = False

    @property
    def room(self) -> int:
        """What another call may cost."""
        return self.limit.amount + self.extra - self.spent - self.reserved

    def raise_for(self, needed: int) -> int:
        """What to allow on top so that there is room for this: the budget's amount, or a multiple."""
        amount = self.limit.amount
        return amount * max(1, math.ceil((needed - self.room) / amount)) if amount else 0

    def at(self, period_start: int) -> Budget:
        """The budget in the period that began then. An earlier period never replaces a later one: setting
        the clock back must not grant the day's amount twice."""
        if period_start <= self.period_start:
            return self
        return Budget(self.id, self.owner, self.limit, period_start, is_default=self.is_default)


class Period(msgspec.Struct, frozen=True):
    """``end`` None: no next period follows by itself."""

    start: int
    end: int | None


def period_at(limit: BudgetLimit, now_ms: int, *, run_at: int = NO_PERIOD) -> Period:
    """The period of the budget at this moment. ``run_at``: when the run of the schedule was queued; each
    run has the whole amount."""
    match limit.key.scope:
        case BudgetScope.DAY:
            today = _local_date(now_ms, limit.timezone)
            return Period(_midnight(today, limit.timezone), _midnight(_next_day(today), limit.timezone))
        case BudgetScope.MONTH:
            first = _local_date(now_ms, limit.timezone).replace(day=1)
            following = (first + timedelta(days=31)).replace(day=1)
            return Period(_midnight(first, limit.timezone), _midnight(following, limit.timezone))
        case BudgetScope.SCHEDULE:
            return Period(run_at, None)
        case BudgetScope.SESSION:
            return Period(NO_PERIOD, None)


def _local_date(now_ms: int, timezone: str) -> date:
    return datetime.fromtimestamp(now_ms / 1000, find_zone(timezone)).date()


def _next_day(day: date) -> date:
    return day + timedelta(days=1)


def _midnight(day: date, timezone: str) -> int:
    """When the day begins. Where the clocks skip midnight, that is the moment at which they are set."""
    return round(datetime(day.year, day.month, day.day, tzinfo=find_zone(timezone)).timestamp() * 1000)


# --- one model call -----------------------------------------------------------------------------------


class ModelCall(msgspec.Struct, frozen=True):
    """One call of a model, for which amounts are reserved. ``name``: what it is within the step."""

    turn_id: str
    epoch: int
    step: int
    name: str


class CallEstimate(msgspec.Struct, frozen=True):
    """What a call may use at most: its input, and an output limit that may be lowered to
    ``output_tokens_min`` if there is not enough left. ``cost`` and ``cost_min``: with the full and with the
    lowest limit, in millionths of a dollar; None: the price is not known."""

    input_tokens: int
    output_tokens: int
    output_tokens_min: int
    cost: int | None = None
    cost_min: int | None = None

    def output_within(self, unit: Unit, room: int) -> int | None:
        """The largest output limit that keeps the call within ``room``; None if even the smallest is too
        large. Money bounds no call whose price is unknown."""
        if unit is Unit.TOKENS:
            left = min(self.output_tokens, room - self.input_tokens)
            return left if left >= self.output_tokens_min else None
        if self.cost is None or self.cost_min is None or self.cost <= room:
            return self.output_tokens
        if self.cost_min > room:
            return None
        # Prices are per token, so the cost is linear in the output.
        range_ = self.output_tokens - self.output_tokens_min
        return self.output_tokens_min + (room - self.cost_min) * range_ // (self.cost - self.cost_min)

    def amount(self, unit: Unit, output_tokens: int) -> int:
        """What is reserved if the call gets this output limit."""
        if unit is Unit.TOKENS:
            return self.input_tokens + output_tokens
        if self.cost is None or self.cost_min is None:
            return 0
        if output_tokens >= self.output_tokens:
            return self.cost
        range_ = self.output_tokens - self.output_tokens_min
        more = (self.cost - self.cost_min) * (output_tokens - self.output_tokens_min)
        return self.cost_min + -(-more // range_)

    def least(self, unit: Unit) -> int:
        """The smallest amount with which the call can be made."""
        return self.amount(unit, self.output_tokens_min)


class Spent(msgspec.Struct, frozen=True):
    """What a call used. ``cost`` None: its price is not known."""

    tokens: int
    cost: int | None = None
    is_estimated: bool = False

    def amount(self, unit: Unit) -> int:
        return self.tokens if unit is Unit.TOKENS else self.cost or 0

    def unpriced_tokens(self, unit: Unit) -> int:
        """Tokens that an amount of money does not count."""
        return self.tokens if unit is Unit.USD and self.cost is None else 0


def spent_of(usage: Usage) -> Spent | None:
    """What a reported usage amounts to; None if it does not say how many tokens there were."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    cost = None if usage.cost_usd is None else to_micros(usage.cost_usd)
    return Spent((usage.input_tokens or 0) + (usage.output_tokens or 0), cost)


def to_micros(usd: float) -> int:
    """Dollars as millionths, rounded up: many small calls must not be free."""
    return math.ceil(round(usd * MICROS, 3))


def describe_amount(unit: Unit, amount: int) -> str:
    if unit is Unit.TOKENS:
        return f"{amount:,} tokens"
    usd = amount / MICROS
    return f"{usd:,.2f} USD" if amount % (MICROS // 100) == 0 else f"{usd:,.6f}".rstrip("0") + " USD"


def describe_key(key: BudgetKey) -> str:
    return f"{key.scope} {key.subject}".strip() + f" in {'tokens' if key.unit is Unit.TOKENS else 'USD'}"


def describe_limit(limit: BudgetLimit) -> str:
    """What the audit log says of a budget."""
    key = limit.key
    return f"{key.scope} {key.subject}".strip() + f": {describe_amount(key.unit, limit.amount)}"


class OverBudget(Refused):
    """A model call was not made, because it could cost more than is left. Nothing was spent."""

    code = "budget_reached"
    status = 409

    def __init__(self, budget: Budget, needed: int, until: int | None) -> None:
        super().__init__(
            describe_shortage(budget),
            hint="Raise it, or wait until the period turns over." if until else "Raise it.",
        )
        self.budget = budget
        self.needed = needed
        self.until = until  # when the period turns over


_NAMES = {
    BudgetScope.SESSION: "The session's budget",
    BudgetScope.DAY: "Today's budget",
    BudgetScope.MONTH: "This month's budget",
    BudgetScope.SCHEDULE: "The budget of this scheduled run",
}


def describe_budget(budget: Budget) -> str:
    """Its name and how much it allows in this period, with what it was raised by."""
    key = budget.limit.key
    return f"{_NAMES[key.scope]} of {describe_amount(key.unit, budget.limit.amount + budget.extra)}"


def describe_shortage(budget: Budget) -> str:
    """Why a call was not made: nothing is left, or less than the call may cost."""
    name = describe_budget(budget)
    if budget.room <= 0:
        return f"{name} is used up."
    left = describe_amount(budget.limit.key.unit, budget.room)
    return f"{name} does not cover the next model call: {left} left."


class WaitingTurn(msgspec.Struct, frozen=True):
    """A turn that waits because of a budget, with the question that it asks. ``needed``: the smallest amount
    with which it can go on. ``budget`` None: it was removed."""

    owner: str
    ask_id: str
    needed: int
    budget: Budget | None


class Settled(msgspec.Struct, frozen=True):
    """A call and what it used."""

    call: ModelCall
    spent: Spent


class Budgets(Protocol):
    """The part of the store for budgets. Each write is one transaction."""

    async def owners(self) -> frozenset[str]:
        """The owners who have a budget."""
        ...

    async def list(self, owner: str) -> Sequence[Budget]:
        """Each in its present period. Reservations of workers that have died count as spent."""
        ...

    async def put(self, owner: str, limit: BudgetLimit) -> Budget:
        """Set or change a budget. Raises NotFound or Gone for a session or schedule that is not there."""
        ...

    async def remove(self, owner: str, key: BudgetKey) -> None:
        """Raises NotFound."""
        ...

    async def reserve(
        self, call: ModelCall, estimate: CallEstimate, *, defaults: Sequence[BudgetLimit] = ()
    ) -> int:
        """Reserve for a call of a running turn in all budgets that apply; return the output limit for it.
        ``defaults``: budgets that the owner has unless others are set. Raises OverBudget, and
        Fenced if another worker has the turn."""
        ...

    async def reserve_aside(
        self, call: ModelCall, estimate: CallEstimate, *, defaults: Sequence[BudgetLimit] = ()
    ) -> int:
        """Like ``reserve``, for a call that is made after the end of its turn."""
        ...

    async def settle(self, settled: Settled) -> None:
        """Replace the reservation of a call by what it used. Repeating it changes nothing."""
        ...

    async def append_settled(
        self, position: WriterPosition, settled: Sequence[Settled], payloads: Sequence[Payload]
    ) -> None:
        """Settle calls in the transaction that journals their usage. ``position``: of the last event before.
        Repeating it changes nothing."""
        ...

    async def waiting_turns(self) -> Sequence[WaitingTurn]:
        """The turns of all owners that wait for a budget, the longest wait first."""
        ...


def make_key(scope: BudgetScope, unit: Unit, subject: str = "") -> BudgetKey:
    """Raises Invalid if the subject is missing, or given where there is none."""
    if scope in WITH_SUBJECT and not subject:
        raise Invalid(f"A budget of a {scope} needs its id.", hint=f"Say which {scope} it is about.")
    if scope not in WITH_SUBJECT and subject:
        raise Invalid(f"The budget of a {scope} is about no session or schedule.", hint="Leave the id out.")
    return BudgetKey(scope, unit, subject)


def make_limit(key: BudgetKey, amount: float, timezone: str) -> BudgetLimit:
    """``amount``: dollars or tokens, as people write them. Raises Invalid."""
    find_zone(timezone)
    most = AMOUNT_MAX if key.unit is Unit.TOKENS else AMOUNT_MAX / MICROS
    if not 0 <= amount <= most:  # refuses NaN too
        raise Invalid(f"{amount:g} is not a usable amount.", hint="Use 0 or more.")
    if key.unit is Unit.TOKENS and amount != int(amount):
        raise Invalid("A number of tokens has no fraction.", hint="Use a whole number.")
    return BudgetLimit(key, int(amount) if key.unit is Unit.TOKENS else to_micros(amount), timezone)


def to_display_amount(unit: Unit, amount: int) -> float:
    """Dollars or tokens, as people write them."""
    return amount if unit is Unit.TOKENS else amount / MICROS
