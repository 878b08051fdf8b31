"""The contents of a notification: a title, a short text and a link. Likely secrets are left out."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

import msgspec

from everturn.delivery.ask_words import call_text, title_of
from everturn.domain.asks import Ask, AskTopic, Decision
from everturn.domain.delivery import NewPart
from everturn.domain.notifications import (
    ABOUT_ASKS,
    TEXT_CHARS_MAX,
    TITLE_CHARS_MAX,
    DeviceKind,
    Notice,
    NoticeKind,
    NoticeMessage,
    NoticeSettings,
    QuietHours,
)
from everturn.domain.redaction import redact
from everturn.domain.timezones import find_zone

FORMAT: Final = "notice"  # of a part that holds a NoticeMessage
_NEEDS: Final = frozenset({NoticeKind.APPROVAL, NoticeKind.BUDGET})
_MARKUP: Final = re.compile(r"[*_`#>|~]+")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def compose(notice: Notice, settings: NoticeSettings) -> NoticeMessage:
    title, text = _words(notice)
    if not settings.shows_content and notice.kind is not NoticeKind.TEST:
        title, text = ("Everturn needs you" if notice.kind in _NEEDS else "Everturn has news"), ""
    return NoticeMessage(
        tag=tag_of(notice),
        kind=notice.kind,
        title=_shorten(redact(title), TITLE_CHARS_MAX),
        text=_shorten(redact(text), TEXT_CHARS_MAX),
        link=_link(notice),
        session=notice.session_id or "",
        ask=notice.cause if _can_be_denied(notice) else "",
    )


def compose_gone(notice: Notice, settings: NoticeSettings) -> NoticeMessage:
    """Return the replacement for a message whose cause is gone."""
    earlier = compose(notice, settings)
    title = _outcome(notice.ask) if notice.kind in ABOUT_ASKS else "Seen"
    return msgspec.structs.replace(earlier, title=title, text=earlier.title, ask="", is_gone=True)


def part_of(notice: Notice, message: NoticeMessage, page_url: str) -> NewPart:
    """The message as a part: JSON for a device of ours, words for a chat."""
    if notice.device.kind is not DeviceKind.CHAT:
        return NewPart(msgspec.json.encode(message).decode(), FORMAT)
    link = f"{page_url.rstrip('/')}/{message.link}" if page_url else ""
    return NewPart("\n".join(filter(None, (message.title, message.text, link))))


def tag_of(notice: Notice) -> str:
    """The tag: of a session, only the last answer is worth a notification."""
    if notice.kind is NoticeKind.ANSWER and notice.session_id:
        return f"answer:{notice.session_id}"
    return f"{notice.kind}:{notice.cause}"


def quiet_until(quiet: QuietHours | None, now_ms: int) -> int | None:
    """Return when the quiet hours end; None outside of them."""
    if quiet is None or quiet.start == quiet.end:
        return None
    zone = find_zone(quiet.timezone)
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    start, end = time.fromisoformat(quiet.start), time.fromisoformat(quiet.end)
    at = now.time()
    is_quiet = start <= at < end if start < end else at >= start or at < end
    if not is_quiet:
        return None
    day = now.date() if at < end else now.date() + timedelta(days=1)
    return round(datetime.combine(day, end, zone).astimezone(UTC).timestamp() * 1000)


def _words(notice: Notice) -> tuple[str, str]:
    first, _, rest = notice.words.partition("\n")
    match notice.kind:
        case NoticeKind.APPROVAL | NoticeKind.BUDGET:
            return _ask_words(notice)
        case NoticeKind.ANSWER:
            return notice.title or "An answer is ready", _plain(notice.answer) or notice.words
        case NoticeKind.JOB:
            return f"Job: {first}", "\n".join(filter(None, (notice.title, rest)))
        case NoticeKind.SCHEDULE:
            return f"Schedule failed: {first}", rest
        case NoticeKind.DELIVERY:
            return "Delivery unknown", "\n".join(filter(None, (f"{notice.title} to {first}", rest)))
    return "Test from Everturn", "Notifications arrive here."


def _ask_words(notice: Notice) -> tuple[str, str]:
    ask = notice.ask
    if ask is None:
        return "Everturn needs you", notice.title
    if ask.topic is AskTopic.APPROVAL:
        return title_of(ask), f"{notice.title}\n{_call(ask)}".strip()
    if ask.topic is AskTopic.QUESTION:
        return notice.title or "Question", ask.text
    return title_of(ask) or "Everturn needs you", f"{notice.title}\n{ask.text}".strip()


def _call(ask: Ask) -> str:
    """The command, or the call with its arguments. It may be shortened: a notification can only deny it,
    and it is allowed where the whole of it is shown."""
    try:
        arguments = json.loads(ask.arguments or "{}")
    except ValueError:
        arguments = {}
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if isinstance(command, str) and command.isprintable() else call_text(ask)


def _can_be_denied(notice: Notice) -> bool:
    return notice.ask is not None and notice.ask.topic is AskTopic.APPROVAL


def _outcome(ask: Ask | None) -> str:
    answer = "" if ask is None else ask.answer
    if ask is not None and ask.topic is AskTopic.APPROVAL and answer not in ("closed", Decision.EXPIRED):
        return "Denied" if answer == Decision.DENY else "Allowed"
    return "Not waiting any more" if answer in ("closed", Decision.EXPIRED, "") else "Answered"


def _link(notice: Notice) -> str:
    if notice.kind is NoticeKind.TEST:
        return "#/settings/notifications"
    if notice.session_id:
        return f"#/s/{notice.session_id}"
    return "#/schedules" if notice.kind is NoticeKind.SCHEDULE else "#/"


def _plain(markdown: str) -> str:
    return " ".join(_MARKUP.sub("", _LINK.sub(r"\1", markdown)).split())


def _shorten(text: str, chars_max: int) -> str:
    text = "".join(char if char == "\n" or char.isprintable() else " " for char in text)
    return text if len(text) <= chars_max else text[: chars_max - 1].rstrip() + "…"
