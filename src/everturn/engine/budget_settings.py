"""The section ``[budget]`` of config.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from everturn.domain.budgets import BudgetLimit

# What is imported inside functions is not needed by most commands, and every command reads the settings.


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    timezone: Annotated[
        str, Meta(description="Time zone of budgets and schedules that name none, such as `Europe/Vienna`.")
    ] = "UTC"
    guest_usd_per_day: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)] | None,
        Meta(description="What each guest of the gateway may spend on a day, in US dollars."),
    ] = None
    guest_tokens_per_day: Annotated[
        Annotated[int, Meta(ge=0, le=10**12)] | None,
        Meta(description="The same in tokens, for models without a known price."),
    ] = None

    def __post_init__(self) -> None:
        if self.timezone == "UTC":
            return
        from everturn.domain.errors import Invalid
        from everturn.domain.timezones import find_zone

        try:
            find_zone(self.timezone)
        except Invalid as error:
            raise ValueError(error.message) from error

    def guest_budgets(self) -> tuple[BudgetLimit, ...]:
        """The budgets of a guest who has none of their own."""
        from everturn.domain.budgets import BudgetKey, BudgetLimit, BudgetScope, Unit, to_micros

        usd, tokens = self.guest_usd_per_day, self.guest_tokens_per_day
        amounts = {Unit.USD: None if usd is None else to_micros(usd), Unit.TOKENS: tokens}
        return tuple(
            BudgetLimit(BudgetKey(BudgetScope.DAY, unit), amount, self.timezone)
            for unit, amount in amounts.items()
            if amount is not None
        )
