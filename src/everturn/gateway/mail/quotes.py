"""Extracts a person's own words from a mail, without quotes and signature, and detects forwarded mails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ATTRIBUTION_LINES_MAX: Final = 3  # mail programs break "On … Ada Lovelace <ada@…> wrote:" over lines
_ATTRIBUTION_CHARS_MAX: Final = 400
_ATTRIBUTION: Final = re.compile(
    r"\b(wrote|writes|schrieb|a écrit|escribió|ha scritto|schreef|escreveu|skrev|napisał|kirjoitti)\b"
    r".{0,200}:$"
)
_DIVIDER: Final = re.compile(
    r"^(-{2,} ?(Original Message|Ursprüngliche Nachricht|Message d'origine|Mensaje original) ?-{2,}"
    r"|_{20,})$",
    re.I,
)
_FROM: Final = re.compile(r"^\*?(From|Von|De|Da|Van|Från|Fra):\*? ")
_SENT: Final = re.compile(
    r"^\*?(Sent|Date|Gesendet|Datum|Envoyé|Enviado|Inviato|Verzonden|Skickat|Sendt):\*? "
)
_SENT_LINES_MAX: Final = 3  # after the line From
_DEVICE: Final = re.compile(r"^(Sent from my |Get Outlook for |Von meinem .{1,40} gesendet$|Envoyé de mon )")
# Where mail programs put the mail that is answered.
_HTML_QUOTE: Final = re.compile(
    r"""<div[^<>]{0,300}\b(class="(gmail_quote|yahoo_quoted|moz-cite-prefix)|id="(appendonsend|divRplyFwdMsg))"""
    r"""|<blockquote[^<>]{0,300}\btype="?cite""",
    re.I,
)
# How mail programs begin a forwarded mail: its subject, and a line above it.
_FORWARD_SUBJECT: Final = re.compile(
    r"^\s*(fwd?|wg|tr|rv|enc|i|vb|vl|vs|vid|doorst|ff|pd|ilt|továbbítás)\s*:", re.I
)
_FORWARD: Final = re.compile(
    r"^\W*((begin|start of) forwarded (message|mail)|forwarded (message|mail)|forwarded by .{1,200}"
    r"|(anfang der )?weitergeleitete[nr]? (nachricht|e-?mail)"
    r"|(début du )?(message|courriel) (transféré|réexpédié)"
    r"|(inicio del )?mensaje reenviado|(inizio )?messaggio inoltrato|(begin )?doorgestuurd bericht"
    r"|mensagem (encaminhada|reencaminhada)|vidarebefordrat (brev|meddelande)|videresendt (besked|melding)"
    r"|(original message|ursprüngliche nachricht|message d'origine|mensaje original))\W*$",
    re.I,
)
_HTML_FORWARD: Final = re.compile(r"moz-forward-container", re.I)


def is_forward(subject: str) -> bool:
    return _FORWARD_SUBJECT.match(subject) is not None


def find_forwarded(subject: str, text: str, page: str, *, is_reply: bool) -> str:
    """The name of the author of the mail that this one forwards; empty if its words are the sender's own.

    ``text`` is the mail without what it answers. When in doubt it counts as forwarded."""
    lines = text.split("\n")
    is_marked = _divider(lines) is not None or any(_FORWARD.match(line) for line in lines)
    if not is_marked and not is_reply:  # a new mail answers none, so what it quotes is forwarded
        is_quoted = any(map(_is_quoted, lines))
        is_marked = is_quoted or bool(_HTML_QUOTE.search(page) or _HTML_FORWARD.search(page))
    if not is_marked and not is_forward(subject):
        return ""
    named = (_FROM.sub("", line).strip(" *") for line in lines if _FROM.match(line))
    return next(filter(None, named), "") or "another person"


def cut_quote(text: str) -> str:
    """Return the text without the answered mail above or below it.

    Quotations between the lines of an answer stay, because they say what each line is about.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    lines = lines[: _divider(lines)]
    lines = _without_end(lines)
    return "\n".join(_without_beginning(lines)).strip("\n")


def cut_html_quote(page: str) -> str:
    """Return the HTML up to the mail that it answers, unless that comes first."""
    found = _HTML_QUOTE.search(page)
    return page[: found.start()] if found and re.search(r">\s*[^<\s]", page[: found.start()]) else page


def cut_signature(text: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    marks = [at for at, line in enumerate(lines) if line in ("-- ", "--")]
    lines = lines[: marks[-1]] if marks else lines
    while lines and (not lines[-1].strip() or _DEVICE.match(lines[-1])):
        lines = lines[:-1]
    return "\n".join(lines)


def _divider(lines: Sequence[str]) -> int | None:
    """Return where Outlook's header lines above the answered mail begin."""
    for at, line in enumerate(lines):
        if _DIVIDER.match(line.strip()):
            return at
        after = lines[at + 1 : at + 1 + _SENT_LINES_MAX]
        if _FROM.match(line) and any(_SENT.match(other) for other in after):
            return at
    return None


def _is_quoted(line: str) -> bool:
    return line.startswith(">")


def _without_end(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and (not lines[end - 1].strip() or _is_quoted(lines[end - 1])):
        end -= 1
    is_quotation = any(_is_quoted(line) for line in lines[end:])
    return lines[: _before_attribution(lines[:end])] if is_quotation else lines


def _before_attribution(lines: list[str]) -> int:
    """Return the end of the text before the lines that attribute the quotation; all of it if there are
    none."""
    for count in range(1, min(_ATTRIBUTION_LINES_MAX, len(lines)) + 1):
        joined = " ".join(line.strip() for line in lines[-count:])[:_ATTRIBUTION_CHARS_MAX]
        if not lines[-count].strip():
            break
        begins = count == len(lines) or not lines[-count - 1].strip()
        if begins and _ATTRIBUTION.search(joined):
            return len(lines) - count
    return len(lines)


def _without_beginning(lines: list[str]) -> list[str]:
    """The text after the one quotation it begins with, for people who answer below."""
    quoted = [at for at, line in enumerate(lines) if _is_quoted(line)]
    if not quoted or any(line.strip() and not _is_quoted(line) for line in lines[quoted[0] : quoted[-1]]):
        return lines
    head = [line for line in lines[: quoted[0]] if line.strip()]
    rest = lines[quoted[-1] + 1 :]
    is_attributed = not head or _before_attribution(head) == 0
    return rest if is_attributed and any(line.strip() for line in rest) else lines
