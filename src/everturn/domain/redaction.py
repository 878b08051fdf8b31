"""Hides secrets in texts that other programs wrote: for logs, and for errors that are stored or shown."""

from __future__ import annotations

import re

_BLOT = "[redacted]"
# Shapes of secrets, wherever they appear: our tokens and cookies, provider keys, headers, URLs, pairs.
_SECRETS = (
    re.compile(r"\bevt_[0-9a-z]{20,}_[0-9a-f]{16,}"),
    re.compile(r"\beva_[0-9a-f]{16,}|\bevc_[0-9]+_[0-9a-f]+_[0-9a-f]{16,}"),
    re.compile(r"\b(?:sin|brw)_[0-9a-z]{20,}\.[0-9a-f]{16,}"),
    re.compile(r"\b(?:sk|pk|rk|ghp|gho|glpat|xox[abeprs]|xapp|AIza|hf|gsk|key)[-_][A-Za-z0-9_\-]{12,}"),
    re.compile(r"\bAIza[A-Za-z0-9_\-]{20,}"),
    re.compile(r"(?<![0-9])[0-9]{6,12}:[A-Za-z0-9_\-]{30,}"),  # Telegram bots
    re.compile(r"\b[MNO][A-Za-z0-9_\-]{23,27}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,}"),  # Discord bots
    re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+"),
    re.compile(r"(?i)(?<=bearer )[^\s\"',;]{6,}"),
    re.compile(r"(?i)(?<=basic )[A-Za-z0-9+/=]{6,}"),
    # What follows the path of an address: tickets and signatures, such as those of Slack's socket.
    # Up to the next "://", from where it is looked for again: else a long text would take hours.
    re.compile(r"://(?:(?!://)[^\s?#\"'<>])*+\?(?P<value>[^\s\"'<>)]+)"),
    re.compile(r"\bhttps://files\.slack\.com/upload/(?P<value>[^\s\"'<>)]+)"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(
        r"(?i)(?:pass(?:word|wd|phrase)?|secret|api[_-]?key|token|authorization|cookie)"
        r"[\"']?\s*[=:]\s*[\"']?(?!\[redacted\])(?P<value>[^\s\"',;}&]{3,})"
    ),
)


def redact(text: str) -> str:
    """The text with everything that looks like a secret redacted."""
    for pattern in _SECRETS:
        text = pattern.sub(_blot, text)
    return text


def _blot(found: re.Match[str]) -> str:
    value = found.groupdict().get("value")
    whole = found.group(0)
    return _BLOT if value is None else whole[: len(whole) - len(value)] + _BLOT
