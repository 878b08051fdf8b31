"""Where the answer of a turn was delivered."""

from __future__ import annotations

import msgspec

from everturn.domain.words import Words


class ReplyState(Words):
    WAITING = "waiting"  # it is on its way
    SENT = "sent"  # the chat has all of it
    UNKNOWN = "unknown"  # some of it may have arrived or not, and a person decides
    UNDELIVERED = "undelivered"  # some of it will not arrive, unless a person sends it again


class ReplyDelivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a turn in one chat. ``parts``: ids of those that a person can send again; none if the
    account was removed."""

    chat_id: str
    account: str
    platform: str
    title: str  # of the chat
    state: ReplyState
    at: int  # when this became so
    is_repeat: bool = False  # some of it may have arrived twice
    parts: tuple[str, ...] = ()
    error: str = ""
