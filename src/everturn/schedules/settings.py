"""The section ``[budget]`` of config.toml."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    timezone: Annotated[
        str, Meta(description="Time zone of schedules that name none, such as `Europe/Vienna`.")
    ] = "UTC"

    def __post_init__(self) -> None:
        if self.timezone == "UTC":
            return
        # Imported here: a configuration without it is read by every command.
        from everturn.domain.errors import Invalid
        from everturn.domain.timezones import find_zone

        try:
            find_zone(self.timezone)
        except Invalid as error:
            raise ValueError(error.message) from error
