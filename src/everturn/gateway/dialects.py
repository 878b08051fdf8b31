"""Writes styled text for each platform: Telegram's HTML, Slack's mrkdwn, Discord's Markdown, plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from html import escape
from typing import Final

from everturn.gateway.blocks import Block, Run, Style


class Dialect(StrEnum):
    TELEGRAM = "telegram"
    SLACK = "slack"
    DISCORD = "discord"
    PLAIN = "plain"


def write_block(block: Block, dialect: Dialect) -> str:
    """Return a block in the platform's format, without the final line break."""
    lead = " " * block.indent
    if block.is_code:
        mark = f"{lead}{block.mark.rstrip()}\n" if block.mark else ""
        return mark + _CODE[dialect](block)
    text = "".join(_RUN[dialect](run) for run in block.runs)
    text = lead + block.mark + text.replace("\n", "\n" + lead + " " * len(block.mark))
    return _QUOTE[dialect](text) if block.is_quote else text


# --- runs ------------------------------------------------------------------------------------------


def _wrap(run: Run, text: str, signs: Mapping[Style, tuple[str, str]]) -> str:
    """Wrap text in its style marks. Spaces stay outside: no platform shows ``* a*`` as bold."""
    inner = text.strip()
    if not inner:
        return text
    for style, (before, after) in signs.items():
        if style in run.styles:
            inner = before + inner + after
    start = len(text) - len(text.lstrip())
    return text[:start] + inner + text[len(text.rstrip()) :]


_TAGS: Final = {
    Style.CODE: ("<code>", "</code>"),
    Style.BOLD: ("<b>", "</b>"),
    Style.ITALIC: ("<i>", "</i>"),
    Style.STRUCK: ("<s>", "</s>"),
}
_SLACK_SIGNS: Final = {Style.BOLD: ("*", "*"), Style.ITALIC: ("_", "_"), Style.STRUCK: ("~", "~")}
_DISCORD_SIGNS: Final = {Style.BOLD: ("**", "**"), Style.ITALIC: ("*", "*"), Style.STRUCK: ("~~", "~~")}
_DISCORD_SPECIAL: Final = re.compile(r"([\\*_~`|<>\[\]])|^(#{1,3} |-# |> )", re.MULTILINE)


def _telegram_run(run: Run) -> str:
    # Telegram allows nothing inside code: its other styles are left out.
    styles = {Style.CODE: _TAGS[Style.CODE]} if Style.CODE in run.styles else _TAGS
    text = _wrap(run, escape(run.text, quote=False), styles)
    return f'<a href="{escape(run.link)}">{text}</a>' if run.link else text


def _slack_run(run: Run) -> str:
    if Style.CODE in run.styles:
        return _between_backticks(run, escape_slack(run.text))
    if run.link:
        label = escape_slack(run.text).replace("|", "¦").replace("\n", " ")
        address = escape_slack(run.link).replace("|", "%7C")
        return _wrap(run, f"<{address}|{label}>", _SLACK_SIGNS)
    return _wrap(run, escape_slack(run.text), _SLACK_SIGNS)


def escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escape_discord(text: str) -> str:
    return _DISCORD_SPECIAL.sub(r"\\\1\2", text)


def _discord_run(run: Run) -> str:
    if Style.CODE in run.styles:
        return _between_backticks(run, run.text)
    text = escape_discord(run.text)
    text = _wrap(run, text, _DISCORD_SIGNS)
    return f"[{text}](<{run.link}>)" if run.link and ">" not in run.link else text


def _between_backticks(run: Run, text: str) -> str:
    """Return inline code.

    Slack and Discord cannot escape a backtick in it, so such code becomes plain text.
    """
    return text if "`" in text or not text.strip() else f"`{text}`"


def _plain_run(run: Run) -> str:
    return f"{run.text} ({run.link})" if run.link and run.link != run.text else run.text


_RUN: Final[Mapping[Dialect, Callable[[Run], str]]] = {
    Dialect.TELEGRAM: _telegram_run,
    Dialect.SLACK: _slack_run,
    Dialect.DISCORD: _discord_run,
    Dialect.PLAIN: _plain_run,
}

# --- code and quotes -------------------------------------------------------------------------------


def _content(block: Block) -> str:
    return "".join(run.text for run in block.runs)


def _telegram_code(block: Block) -> str:
    text = escape(_content(block), quote=False)
    if block.language:
        return f'<pre><code class="language-{escape(block.language)}">{text}</code></pre>'
    return f"<pre>{text}</pre>"


def _fence(text: str, language: str = "") -> str:
    """Three backticks in the code would end it: an invisible character keeps them apart."""
    return f"```{language}\n{text.replace('```', '`​`​`')}\n```"


_CODE: Final[Mapping[Dialect, Callable[[Block], str]]] = {
    Dialect.TELEGRAM: _telegram_code,
    Dialect.SLACK: lambda block: _fence(escape_slack(_content(block))),
    Dialect.DISCORD: lambda block: _fence(_content(block), block.language),
    Dialect.PLAIN: lambda block: "\n".join("    " + line for line in _content(block).split("\n")),
}
_QUOTE: Final[Mapping[Dialect, Callable[[str], str]]] = {
    Dialect.TELEGRAM: lambda text: f"<blockquote>{text}</blockquote>",
    Dialect.SLACK: lambda text: "\n".join("> " + line for line in text.split("\n")),
    Dialect.DISCORD: lambda text: "\n".join("> " + line for line in text.split("\n")),
    Dialect.PLAIN: lambda text: "\n".join("> " + line for line in text.split("\n")),
}
