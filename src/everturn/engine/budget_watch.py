"""Which owners have a budget, as far as this process knows, and the turns that wait for one.

Turns of other owners ask the store nothing before a model call. A budget that another process sets is known
here after the next ``look``, at most ``EngineSettings.budgets_s`` later.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn.domain.budgets import BudgetLimit, WaitingTurn
from everturn.domain.owners import is_guest
from everturn.domain.store import Store


class BudgetWatch:
    def __init__(self, store: Store, guest_budgets: Sequence[BudgetLimit] = ()) -> None:
        self._store = store
        self._guest_budgets = tuple(guest_budgets)
        self._owners: frozenset[str] = frozenset()

    def is_bounded(self, owner: str) -> bool:
        return owner in self._owners or bool(self.defaults(owner))

    def defaults(self, owner: str) -> tuple[BudgetLimit, ...]:
        """The budgets of an owner who has none of their own."""
        return self._guest_budgets if is_guest(owner) else ()

    def note(self, owner: str) -> None:
        """This owner has a budget from now on. Turns of delegates that begin before the next look know it."""
        if owner not in self._owners:
            self._owners |= {owner}

    async def look(self) -> int:
        """Learn who has a budget, and continue turns whose budget has room again; return how many."""
        known, self._owners = self._owners, await self._store.budgets.owners()
        if not known and not self._owners:
            return 0
        resumed = 0
        for turn in select_fitting(await self._store.budgets.waiting_turns()):
            resumed += await self._store.asks.resume(turn.owner, turn.ask_id)
        return resumed


def select_fitting(waiting: Sequence[WaitingTurn]) -> list[WaitingTurn]:
    """The turns for which there is room now, first come first served. All of them fit together, so that
    none has to wait again at once."""
    room: dict[str, int] = {}
    found = []
    for turn in waiting:
        budget = turn.budget
        if budget is not None:
            left = room.get(budget.id, budget.room) - turn.needed
            if left < 0:
                continue
            room[budget.id] = left
        found.append(turn)
    return found
