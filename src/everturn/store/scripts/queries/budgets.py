"""Queries of budgets and reservations."""

from __future__ import annotations

from everturn.store.scripts.queries.columns import Columns
from everturn.store.scripts.script import Select, SelectValue


class BudgetColumns(Columns, frozen=True):
    budget_no: int
    id: str
    owner: str
    scope: str
    unit: str
    subject: str
    amount: int
    timezone: str
    is_default: int
    period_start: int
    extra: int
    spent: int
    estimated: int
    reserved: int
    unpriced_tokens: int


class ReservationColumns(Columns, frozen=True):
    epoch: int
    step: int
    call: str
    budget_no: int
    unit: str
    period_start: int
    amount: int


class HeldAmount(Columns, frozen=True):
    budget_no: int
    period_start: int
    amount: int


class BudgetAsk(Columns, frozen=True):
    id: str
    owner: str
    body: str  # JSON


BUDGETS_OWNERS: SelectValue[[], str] = SelectValue("budgets_owners")
BUDGETS: Select[[str], BudgetColumns] = Select("budgets_list", BudgetColumns)
BUDGET: Select[[str], BudgetColumns] = Select("budget_get", BudgetColumns)
BUDGET_BY_KEY: Select[[str, str, str, str], BudgetColumns] = Select("budget_find", BudgetColumns)
BUDGETS_OF_TURN: Select[[str, int, int], BudgetColumns] = Select("budgets_of_turn", BudgetColumns)
RESERVATIONS: Select[[int], ReservationColumns] = Select("reservations_of_turn", ReservationColumns)
RESERVATIONS_HELD: Select[[str], HeldAmount] = Select("reservations_held", HeldAmount)
BUDGET_ASKS: Select[[], BudgetAsk] = Select("asks_about_budgets", BudgetAsk)
