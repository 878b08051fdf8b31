"""A session for people: as Markdown, and the words that its Markdown and its HTML share."""

from __future__ import annotations

import time

from everturn.domain.messages import (
    Attachment,
    Call,
    Message,
    Reasoning,
    Result,
    Role,
    SavedFiles,
    Summary,
    Text,
    UsedSkill,
)
from everturn.domain.sessions import Session

PRINTED = "Output before it was interrupted:"
NAMES = {Role.USER: "You", Role.ASSISTANT: "Everturn", Role.TOOL: "Tools", Role.SUMMARY: "Summary"}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Printable by their category, but they leave no mark on the screen.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def markdown(session: Session, messages: list[Message]) -> str:
    blocks = [f"# {title_of(session)}", f"_{date(session.created_at)}_"]
    for message in messages:
        blocks.append(f"## {NAMES[message.role]} · {date(message.created_at)}")
        blocks += [block for block in map(_part, message.parts) if block]
    return "\n\n".join(blocks) + "\n"


def title_of(session: Session) -> str:
    return visible(session.title or session.first_words or "Untitled session")


def date(at: int) -> str:
    """Such as ``18 Nov 2026, 21:18 UTC``. The month's name does not depend on the machine's language."""
    moment = time.gmtime(at / 1000)
    return f"{moment.tm_mday} {_MONTHS[moment.tm_mon - 1]} {time.strftime('%Y, %H:%M', moment)} UTC"


def describe_saved(part: SavedFiles) -> str:
    names = ", ".join(visible(change.path) for change in part.changes)
    more = part.total - len(part.changes)
    return f"Saved: {names}" + (f" and {more:,} more" if more > 0 else "")


def describe_skill(part: UsedSkill) -> str:
    return f"Skill {visible(part.name)}, version {visible(part.digest[:12])}"


def describe_attachment(part: Attachment) -> str:
    return f"{visible(part.name)} ({visible(part.media_type)}, {part.size:,} bytes)"


def visible(text: str) -> str:
    """The text with characters that hide or move a part of it written out, such as ``\\u202e``."""
    return "".join(_escape(char) if _is_hidden(char) else char for char in text)


def _is_hidden(char: str) -> bool:
    if char in "\n\t":
        return False
    return not char.isprintable() or char in _INVISIBLE or "\U000e0100" <= char <= "\U000e01ef"


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def _part(part: object) -> str:
    if isinstance(part, Text):
        return _quote(part.text) + "\n\n_(abandoned attempt)_" if part.is_abandoned else part.text
    if isinstance(part, Reasoning):
        return _quote(part.text) if part.text else ""
    if isinstance(part, Call):
        return f"**{part.name}**\n\n{_fence(part.arguments, 'json')}"
    if isinstance(part, Result):
        printed = f"\n\n{PRINTED}\n\n{_fence(part.output)}" if part.output else ""
        return f"**{part.name}**: {part.outcome}\n\n{_fence(part.text)}{printed}"
    if isinstance(part, Attachment):
        return f"_Attachment: {describe_attachment(part)}_"
    if isinstance(part, SavedFiles):
        return f"_{describe_saved(part)}_"
    if isinstance(part, UsedSkill):
        return f"_{describe_skill(part)}_"
    if isinstance(part, Summary):
        return part.text
    return ""


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _fence(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any inside it."""
    longest, run = 2, 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
