"""How one account is served."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from everturn.domain.delivery import WhenUnknown
from everturn.domain.store_values import WhenBusy

PrivateAddresses = tuple[Annotated[str, Meta(pattern=r"^[0-9A-Fa-f.:\[\]]+:[0-9]{1,5}$")], ...]
AGE_MAX_S = 7 * 24 * 3600.0


class DeliverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of all accounts."""

    age_max_s: Annotated[
        Annotated[float, Meta(gt=0)],
        Meta(description="A message that a platform could not take for this long is undelivered."),
    ] = AGE_MAX_S


class NotificationSettings(msgspec.Struct, frozen=True, kw_only=True):
    contact: Annotated[
        Annotated[str, Meta(pattern=r"^(mailto:[^@\s]+@[^@\s]+|https://[^\s]+)?$(?!\n)")],
        Meta(
            description="How a push service reaches you, such as mailto:you@example.org. Empty: the address "
            "of the page, if it is public_url with https."
        ),
    ] = ""
    private_addresses: Annotated[
        PrivateAddresses,
        Meta(
            description="Addresses such as 192.168.1.5:8080 to which notifications may be sent although they "
            "are not public."
        ),
    ] = ()


class AccountSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an account, and fixed bounds that tests change."""

    when_busy: WhenBusy = WhenBusy.QUEUE  # what becomes of a message that arrives during a turn
    when_unknown: WhenUnknown = WhenUnknown.REPEAT  # where the platform does not deduplicate
    age_max_s: float = AGE_MAX_S  # after this, what could not be sent is undelivered
    file_bytes_max: int = 50_000_000  # of one file of a message
    live: bool = False  # show what a turn does, in one message that is edited
    live_after_s: float = 2.0  # a turn that takes longer is shown
    live_look_s: float = 1.0  # how often to look for turns to show
    live_spacing_s: float = 3.0  # the least time between two edits of a chat
    live_timeout_s: float = 10.0  # of one edit
    live_age_max_s: float = 60.0  # after this, what could not be shown is not shown
    poll_s: float = 1.0  # how often to poll for work of other processes
    wake_s: float = 0.1  # the least time between two polls because a session changed
    typing_s: float = 4.0  # how often the typing sign is renewed
    take_s: float = 2.0  # how often to ask for the lease
    send_timeout_s: float = 30.0
    fetch_timeout_s: float = 120.0
    sends_at_once_max: int = 16
    chats_at_once_max: int = 16  # whose messages are made into turns in parallel
    retry_first_s: float = 1.0
    retry_longest_s: float = 300.0
