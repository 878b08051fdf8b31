"""A session as one HTML file that looks like the conversation, loads nothing and runs nothing."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from everturn.domain.messages import (
    Attachment,
    Call,
    Message,
    Outcome,
    Reasoning,
    Result,
    Role,
    SavedFiles,
    Summary,
    Text,
    UsedSkill,
)
from everturn.domain.sessions import Session
from everturn.domain.web_sources import sources_of
from everturn.store.sessions.export_calls import fields_of, label_of, write_fields
from everturn.store.sessions.export_prose import code, plain, prose
from everturn.store.sessions.export_style import STYLE
from everturn.store.sessions.export_text import (
    NAMES,
    PRINTED,
    date,
    describe_attachment,
    describe_saved,
    describe_skill,
    title_of,
    visible,
)

_OUTCOMES = {
    Outcome.OK: "Done",
    Outcome.ERROR: "Failed",
    Outcome.DENIED: "Denied",
    Outcome.CANCELLED: "Stopped",
    Outcome.UNKNOWN: "Outcome unknown",
}
_ASK = "ask_user"
_BAD = (Outcome.ERROR, Outcome.UNKNOWN)
_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"


class _Used(NamedTuple):
    """A call with what came of it."""

    call: Call | None
    result: Result | None


Shown = tuple[Message, list[object]]


def html(session: Session, messages: list[Message]) -> str:
    """The document. A million characters take about a second: call it in a thread."""
    title = escape(title_of(session))
    articles = "".join(
        _article(side, list(group)) for side, group in groupby(_with_calls(messages), key=_side)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<header><h1>{title}</h1><p class="when">{date(session.created_at)}</p></header>\n'
        f"{articles}</main>\n</body>\n</html>\n"
    )


def _with_calls(messages: Sequence[Message]) -> list[Shown]:
    """The messages with their parts, where each result has moved to its call. Models repeat the ids of calls:
    a result belongs to the newest call of its name that has none yet."""
    shown: list[Shown] = []
    waiting: dict[tuple[str, str], tuple[list[object], int, Call]] = {}
    for message in messages:
        parts: list[object] = []
        for part in message.parts:
            if isinstance(part, Call):
                waiting[message.turn_id, part.id] = parts, len(parts), part
                parts.append(_Used(part, None))
            elif isinstance(part, Result) and (message.turn_id, part.call_id) in waiting:
                there, index, call = waiting.pop((message.turn_id, part.call_id))
                there[index] = _Used(call, part)
            else:
                parts.append(_Used(None, part) if isinstance(part, Result) else part)
        shown.append((message, parts))
    return shown


def _side(shown: Shown) -> Role:
    """An answer and its tools are one article."""
    role = shown[0].role
    return Role.ASSISTANT if role is Role.TOOL else role


def _article(side: Role, shown: Sequence[Shown]) -> str:
    written = [_part(part, side) for _, parts in shown for part in parts]
    if not any(written):
        return ""
    written.append(_sources(shown))
    first = shown[0][0]
    head = f"<h2>{_who(side, first)} <span>{date(first.created_at)}</span></h2>"
    return f'<article class="{side.value}">\n{head}\n{chr(10).join(filter(None, written))}\n</article>\n'


def _sources(shown: Sequence[Shown]) -> str:
    """The web pages that an answer rests on."""
    used = [part.result for _, parts in shown for part in parts if isinstance(part, _Used)]
    answer = "\n".join(message.text for message, _ in shown)
    found = sources_of((result for result in used if result is not None), answer)
    if not found:
        return ""
    rows = "".join(
        f'<li><a href="{escape(url)}" rel="noopener noreferrer">{escape(visible(title or url))}</a>'
        f"{f' <span>{escape(visible(url))}</span>' if title else ''}</li>"
        for url, title in found
    )
    return f'<div class="sources"><p class="note">Sources</p><ol>{rows}</ol></div>'


def _who(side: Role, message: Message) -> str:
    source = next((p.source for p in message.parts if isinstance(p, Text) and p.source is not None), None)
    if source is None:
        return NAMES[side]
    sender = source.sender if source.sender and not source.is_trusted else NAMES[side]
    return escape(visible(f"{sender}, from {source.platform}"))


def _part(part: object, side: Role) -> str:
    if isinstance(part, Text):
        return _text(part, side)
    if isinstance(part, Reasoning):
        return _details("Thought", _prose(part.text)) if part.text.strip() else ""
    if isinstance(part, _Used):
        return _call(part.call, part.result)
    if isinstance(part, Attachment):
        return _note(f"Attachment: {describe_attachment(part)}")
    if isinstance(part, SavedFiles):
        return _note(describe_saved(part))
    if isinstance(part, UsedSkill):
        return _note(describe_skill(part))
    if isinstance(part, Summary):
        return _details("Summary of the messages before", _prose(part.text))
    return ""  # only a newer version can read it


def _text(part: Text, side: Role) -> str:
    if not part.text.strip():
        return ""
    if part.is_abandoned:
        return f'<div class="cut">{plain(part.text)}{_note("Interrupted. Kept so you can read it.")}</div>'
    if side is Role.USER:  # shown as it was typed
        return f'<div class="say">{plain(part.text)}</div>'
    return _prose(part.text)


def _prose(text: str) -> str:
    return f'<div class="prose">{prose(text)}</div>'


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _call(call: Call | None, result: Result | None) -> str:
    if call and result and call.name == _ASK and result.outcome is Outcome.OK:
        return _show_answer(call, result)
    outcome = _OUTCOMES[result.outcome] if result else "Not finished"
    name = call.name if call else result.name if result else ""
    asked = fields_of(call.arguments) if call else []
    is_bad = result is not None and result.outcome in _BAD
    whole, label = write_fields(asked), label_of(asked)
    summary = (
        f"<b>{escape(visible(name))}</b> <code>{escape(label)}</code>"
        f"<i{' class=bad' if is_bad else ''}>{outcome}</i>"
    )
    blocks = [code(whole)] if whole not in ("", label) else []
    if result and result.arguments is not None:
        blocks += [_note("Changed before it ran:"), code(write_fields(fields_of(result.arguments)))]
    if result and result.text:
        blocks.append(code(result.text))
    if result and result.output:
        blocks += [_note(PRINTED), code(result.output)]
    # Open, as on the page: what did not go well is to be seen.
    return _details(summary, "".join(blocks), " open" if is_bad else "")


def _show_answer(call: Call, result: Result) -> str:
    """A question to the user and the answer, as the conversation shows them."""
    asked = dict(fields_of(call.arguments)).get("question", "")
    return (
        f'<div class="asked">{_note("Asked")}{plain(asked)}</div>'
        f'<div class="answer"><div class="say">{plain(result.text)}</div>{_note("Your answer")}</div>'
    )


def _details(summary: str, body: str, is_open: str = "") -> str:
    return f"<details{is_open}><summary>{summary}</summary>{body}</details>"
