"""The audit log: who did what that matters to security or money. Rooms below the web write to it as well."""

from __future__ import annotations

from everturn.domain.asks import Ask
from everturn.domain.delivery import Received


class AuditLog:
    """The inert log, for programs that have no file for one."""

    async def write(self, what: str, by: str, *, address: str = "", detail: str = "") -> None:
        """Durable on return."""


def describe_answer(ask: Ask, answer: str) -> str:
    """An answer to an approval, by which the call can be found again."""
    how = f"{answer}, changed" if ask.edited is not None else answer
    return f"{how}: {ask.name} {ask.label} (digest {ask.digest[:16]}, {ask.session_id})"


def describe_decision(ask: Ask, answer: str) -> str:
    """An answer that lets a turn go on or ends it, such as one about a limit."""
    return f"{ask.topic}: {answer[:200]} ({ask.session_id})"


def name_sender(sender: str, account: str, platform: str) -> str:
    """How the log calls a person who acts in a chat: by the platform's id, as names are chosen."""
    return f"{sender} ({account}, {platform})"


def name_author(received: Received) -> str:
    """The person who sent a stored update."""
    place = received.chat.place
    sender = received.update.sender if received.update is not None else ""
    return name_sender(sender, place.account, place.platform)
