"""Settings of traces."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Fields with a description are settings of config.toml."""

    endpoint: Annotated[
        Annotated[str, Meta(pattern=r"^(https?://[^\s]+)?$(?!\n)")],
        Meta(
            description="Where traces are sent, as OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces. "
            "Empty: there are no traces. Needs the extra `traces`."
        ),
    ] = ""
    service_name: Annotated[
        Annotated[str, Meta(min_length=1)],
        Meta(description="`service.name` of the traces."),
    ] = "everturn"
    batch_s: float = 1.0  # how long spans are gathered before they are sent
    timeout_s: float = 10.0  # of one request to the collector
    stop_s: float = 3.0  # how long stopping waits for what is not sent yet
    waiting_max: int = 10_000  # turns and spans that wait to be sent; more are dropped
