"""The settings of the store."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class StoreSettings(msgspec.Struct, frozen=True):
    """Fields with a description are settings of config.toml; the others are fixed bounds."""

    text_bytes_max: Annotated[int, Meta(description="Largest text of one message.")] = 1_000_000
    recovery_attempts_max: int = 3
    recovery_age_max_ms: int = 24 * 3600 * 1000
    lease_s: Annotated[
        float,
        Meta(description="PostgreSQL: a server not heard of for this long loses its turns to the others."),
    ] = 15.0
    direct_url: Annotated[str | None, Meta(description="The same as database_direct_url.")] = None
    files_url: str | None = None  # the same as url in [files]
