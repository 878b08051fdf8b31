"""Shortcuts for tests of budgets."""

from __future__ import annotations

from everturn.domain.budgets import Budget, BudgetKey, BudgetLimit, BudgetScope, CallEstimate, ModelCall, Unit
from everturn.domain.store_values import Claim
from everturn.store import Store
from everturn.testing.acting import ME


def limit(
    amount: int,
    scope: BudgetScope = BudgetScope.DAY,
    unit: Unit = Unit.TOKENS,
    subject: str = "",
    timezone: str = "UTC",
) -> BudgetLimit:
    return BudgetLimit(BudgetKey(scope, unit, subject), amount, timezone)


def tokens(amount: int) -> CallEstimate:
    """A call that may use this many tokens, and not fewer."""
    return CallEstimate(amount - 1, 1, 1)


def call_of(claim: Claim, step: int = 1, name: str = "answer:1") -> ModelCall:
    return ModelCall(claim.turn.id, claim.epoch, step, name)


async def only(store: Store, owner: str = ME) -> Budget:
    (found,) = await store.budgets.list(owner)
    return found
