"""Budgets: what may be spent, what was, and what waits."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain import errors as e
from everturn.domain.budgets import (
    Budget,
    BudgetScope,
    Unit,
    describe_key,
    describe_limit,
    make_key,
    make_limit,
    period_at,
    to_display_amount,
)
from everturn.domain.clock import Clock
from everturn.engine import Engine
from everturn.web.access.audit import Audit
from everturn.web.access.identity import Scope
from everturn.web.http.routing import AnyEndpoint, ApiCall, Endpoint, Nothing

_Zone = Annotated[str, Meta(max_length=100)]
_Subject = Annotated[str, Meta(max_length=100)]


class BudgetView(msgspec.Struct, frozen=True):
    """Amounts are dollars or tokens, as ``unit`` says. ``extra`` was allowed on top, for this period.
    ``estimated``: the part of ``spent`` whose usage was not reported. ``reserved``: for calls under way.
    ``unpriced_tokens``: of models whose price is not known, which no amount of money bounds. ``period_end``
    None: it does not turn over by itself. ``waiting``: how many turns wait because of it."""

    id: str
    scope: BudgetScope
    unit: Unit
    subject: str
    amount: float
    extra: float
    spent: float
    estimated: float
    reserved: float
    unpriced_tokens: int
    timezone: str
    period_start: int
    period_end: int | None
    waiting: int


class BudgetList(msgspec.Struct, frozen=True):
    """``timezone``: of budgets that name none."""

    items: tuple[BudgetView, ...]
    timezone: str


class PutBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``amount``: dollars or tokens; None removes the budget. ``subject``: the id of the session or schedule
    that it is about. ``timezone`` left out: that of the server's settings."""

    scope: BudgetScope
    amount: float | None
    unit: Unit = Unit.USD
    subject: _Subject = ""
    timezone: _Zone | None = None


class BudgetsApi:
    """``timezone``: of budgets that name none."""

    def __init__(self, engine: Engine, clock: Clock, timezone: str, audit: Audit) -> None:
        self._engine = engine
        self._audit = audit
        self._budgets = engine.store.budgets
        self._clock = clock
        self._timezone = timezone

    def endpoints(self) -> list[AnyEndpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/budgets",
                run=self.budgets,
                summary="What may be spent, what was spent, and what waits.",
                tag="settings",
                answer=BudgetList,
            ),
            Endpoint(
                method="PUT",
                path="/api/budgets",
                run=self.put,
                summary="Set, change or remove a budget.",
                tag="settings",
                scope=Scope.ADMIN,
                body=PutBudget,
                answer=BudgetList,
                errors=(e.Invalid, e.NotFound, e.Gone),
            ),
        ]

    async def budgets(self, call: ApiCall[Nothing, Nothing]) -> BudgetList:
        return await self._list(call.owner)

    async def put(self, call: ApiCall[Nothing, PutBudget]) -> BudgetList:
        body = call.body
        key = make_key(body.scope, body.unit, body.subject)
        if body.amount is None:
            await self._engine.remove_budget(call.owner, key)
            await self._audit.note("budget.removed", call.caller, describe_key(key))
        else:
            limit = make_limit(key, body.amount, body.timezone or self._timezone)
            await self._engine.put_budget(call.owner, limit)
            await self._audit.note("budget.set", call.caller, describe_limit(limit))
        return await self._list(call.owner)

    async def _list(self, owner: str) -> BudgetList:
        found = await self._budgets.list(owner)
        waiting = await self._budgets.waiting_turns() if found else ()
        counts = Counter(turn.budget.id for turn in waiting if turn.budget is not None)
        return BudgetList(tuple(self._view(one, counts[one.id]) for one in found), self._timezone)

    def _view(self, budget: Budget, waiting: int) -> BudgetView:
        key = budget.limit.key
        return BudgetView(
            budget.id,
            key.scope,
            key.unit,
            key.subject,
            to_display_amount(key.unit, budget.limit.amount),
            to_display_amount(key.unit, budget.extra),
            to_display_amount(key.unit, budget.spent),
            to_display_amount(key.unit, budget.estimated),
            to_display_amount(key.unit, budget.reserved),
            budget.unpriced_tokens,
            budget.limit.timezone,
            budget.period_start,
            period_at(budget.limit, self._clock.now_ms()).end,
            waiting,
        )
