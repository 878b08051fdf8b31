"""What the model calls of a turn reserve in budgets, and what they have used."""

from __future__ import annotations

import msgspec

from everturn.domain.asks import Ask, AskBudget, AskTopic, BudgetAnswer
from everturn.domain.budgets import (
    BudgetKey,
    BudgetLimit,
    BudgetScope,
    CallEstimate,
    ModelCall,
    OverBudget,
    Settled,
    Spent,
    Unit,
    describe_amount,
    describe_shortage,
    spent_of,
    to_micros,
)
from everturn.domain.model import Model, ModelRequest
from everturn.domain.model_errors import ModelTimeout, ModelTrouble, StreamCut
from everturn.domain.owners import is_guest
from everturn.domain.turns import Turn, Usage
from everturn.engine.calls import AskWording, new_ask
from everturn.engine.context import estimate_plain
from everturn.engine.model_call import ask_model
from everturn.engine.services import TurnServices
from everturn.engine.settings import TurnProfile

# A request is estimated by its characters. Some languages and code need more tokens than that.
_INPUT_MARGIN = 1.25
_OUTPUT_TOKENS_GUESS = 8_192  # for a model whose limit is not known; the request then has this limit
_OUTPUT_TOKENS_MIN = 1_024  # a shorter answer is rarely of use
_CHARS_PER_TOKEN = 3.0


class Reservation(msgspec.Struct, frozen=True):
    """What was reserved for one call. ``output_tokens``: the limit that the request has to have."""

    call: ModelCall
    model: str
    estimate: CallEstimate
    output_tokens: int


class Spending:
    """The model calls of one turn. For an owner without budgets it does nothing. ``profile``: of the turn;
    ``services`` have the profiles of now."""

    def __init__(self, services: TurnServices, turn: Turn, epoch: int, profile: TurnProfile) -> None:
        self._services = services
        self.turn = turn
        self._epoch = epoch
        self._defaults = (*services.budgets.defaults(turn.owner), *budgets_of(profile, turn.session_id))
        self.open: Reservation | None = None  # of the call that is under way
        self.output_chars = 0  # received from it so far

    async def reserve(
        self, model: Model, request: ModelRequest, input_tokens: int, *, step: int, name: str
    ) -> Reservation | None:
        """Reserve for a call, in all budgets that apply; None if there is none. Raises OverBudget."""
        watch, owner = self._services.budgets, self.turn.owner
        if not self._defaults and not watch.is_bounded(owner):
            return None
        watch.note(owner)
        estimate = await self._estimate(model, request, input_tokens)
        call = ModelCall(self.turn.id, self._epoch, step, name)
        budgets = self._services.store.budgets
        reserve = budgets.reserve_aside if self.turn.ended_at is not None else budgets.reserve
        output_tokens = await reserve(call, estimate, defaults=self._defaults)
        self.output_chars = 0
        self.open = Reservation(call, model.name, estimate, output_tokens)
        return self.open

    async def _estimate(self, model: Model, request: ModelRequest, input_tokens: int) -> CallEstimate:
        most = request.output_tokens_max or model.abilities.output_tokens or _OUTPUT_TOKENS_GUESS
        least = min(most, _OUTPUT_TOKENS_MIN)
        given = round(input_tokens * _INPUT_MARGIN)
        cost = await self._services.models.cost(model.name, Usage(given, most))
        cost_min = await self._services.models.cost(model.name, Usage(given, least))
        if cost is None or cost_min is None:
            return CallEstimate(given, most, least)
        return CallEstimate(given, most, least, to_micros(cost), to_micros(cost_min))

    async def measure(self, reservation: Reservation, usage: Usage) -> Settled:
        """What the call has used: as reported, else as estimated."""
        self.open = None
        spent = spent_of(usage)
        if spent is None:
            return await self._guess(reservation)
        if spent.cost is None and reservation.estimate.cost is not None:
            cost = await self._services.models.cost(reservation.model, usage)
            spent = msgspec.structs.replace(spent, cost=None if cost is None else to_micros(cost))
        return Settled(reservation.call, spent)

    async def _guess(self, reservation: Reservation) -> Settled:
        """What a call has used whose usage was not reported."""
        usage = Usage(reservation.estimate.input_tokens, round(self.output_chars / _CHARS_PER_TOKEN))
        cost = await self._services.models.cost(reservation.model, usage)
        spent = Spent((usage.input_tokens or 0) + (usage.output_tokens or 0), is_estimated=True)
        if cost is not None:
            spent = msgspec.structs.replace(spent, cost=to_micros(cost))
        return Settled(reservation.call, spent)

    async def settle_broken_off(self, *, was_taken: bool = True) -> None:
        """Count the call under way, if there is one, which ends early. If not ``was_taken`` and nothing was
        received, the provider has refused the request and charges nothing."""
        reservation, self.open = self.open, None
        if reservation is None:
            return
        settled = Settled(reservation.call, Spent(0, 0))
        if was_taken or self.output_chars:
            settled = await self._guess(reservation)
        await self._services.store.budgets.settle(settled)


def budgets_of(profile: TurnProfile, session_id: str) -> tuple[BudgetLimit, ...]:
    """What each session with the profile may spend, unless its owner has set a budget for it."""
    usd = None if profile.budget_usd is None else to_micros(profile.budget_usd)
    amounts = {Unit.USD: usd, Unit.TOKENS: profile.budget_tokens}
    return tuple(
        BudgetLimit(BudgetKey(BudgetScope.SESSION, unit, session_id), amount)
        for unit, amount in amounts.items()
        if amount is not None
    )


async def ask_within_budget(
    services: TurnServices, spending: Spending, model: Model, request: ModelRequest, *, step: int, name: str
) -> tuple[str, Usage]:
    """Ask a model once, outside the turn's steps. Raises OverBudget and ModelTrouble."""
    input_tokens = estimate_plain(request)
    reserved = await spending.reserve(model, request, input_tokens, step=step, name=name)
    if reserved is not None:
        request = msgspec.structs.replace(request, output_tokens_max=reserved.output_tokens)
    subject = spending.turn.id
    try:
        text, usage = await ask_model(
            model, request, clock=services.clock, settings=services.settings, subject=subject
        )
    except ModelTrouble as error:
        await spending.settle_broken_off(was_taken=isinstance(error, (ModelTimeout, StreamCut)))
        raise
    if reserved is not None:
        spending.output_chars = len(text)
        await services.store.budgets.settle(await spending.measure(reserved, usage))
    return text, usage


def ask_about(services: TurnServices, turn: Turn, reached: OverBudget) -> Ask:
    """The question of a turn that waits because of a budget. It never expires: once there is room it is
    answered automatically."""
    budget = reached.budget
    choices = (BudgetAnswer.RAISE, BudgetAnswer.STOP)
    offered = budget.raise_for(reached.needed)
    can_raise = offered > 0 and not is_guest(turn.owner)  # guard: f05
    text = describe_shortage(budget)
    if can_raise:
        more = describe_amount(budget.limit.key.unit, offered)
        text += f" Raise it by {more}?"
    if reached.until is not None:
        text += f" Otherwise the turn goes on when the next {budget.limit.key.scope} begins."
    wording = AskWording(AskTopic.BUDGET, text, choices if can_raise else choices[1:])
    about = AskBudget(budget.id, reached.needed, offered)
    return msgspec.structs.replace(new_ask(services, turn, wording), budget=about, expires_at=None)
