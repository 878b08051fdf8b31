"""Logs: one line for people on a terminal, one JSON object otherwise, secrets blotted out in both."""

from __future__ import annotations

import logging
import re
import sys
import time
import traceback
from typing import IO, Any

import msgspec

_BLOT = "[redacted]"
# Shapes of secrets, whoever logs them: our tokens and cookies, provider keys, headers, URLs, pairs.
_SECRETS = (
    re.compile(r"\bevt_[0-9a-z]{20,}_[0-9a-f]{16,}"),
    re.compile(r"\bsin_[0-9a-z]{20,}\.[0-9a-f]{16,}"),
    re.compile(r"\b(?:sk|pk|rk|ghp|gho|glpat|xox[abp]|AIza|hf|gsk|key)[-_][A-Za-z0-9_\-]{12,}"),
    re.compile(r"\bAIza[A-Za-z0-9_\-]{20,}"),
    re.compile(r"\b[0-9]{6,12}:[A-Za-z0-9_\-]{30,}"),  # Telegram bots
    re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+"),
    re.compile(r"(?i)(?<=bearer )[^\s\"',;]{6,}"),
    re.compile(r"(?i)(?<=basic )[A-Za-z0-9+/=]{6,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(
        r"(?i)(?:pass(?:word|wd|phrase)?|secret|api[_-]?key|token|authorization|cookie)"
        r"[\"']?\s*[=:]\s*[\"']?(?!\[redacted\])(?P<value>[^\s\"',;}&]{3,})"
    ),
)
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def redacted(text: str) -> str:
    """The text with everything that looks like a secret blotted out."""
    for pattern in _SECRETS:
        text = pattern.sub(_blot, text)
    return text


def _blot(found: re.Match[str]) -> str:
    value = found.groupdict().get("value")
    whole = found.group(0)
    return _BLOT if value is None else whole[: len(whole) - len(value)] + _BLOT


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _OWN and not name.startswith("_") and name != "color_message":
                entry[name] = redacted(value) if isinstance(value, str) else value
        if record.exc_info:
            entry["error"] = redacted("".join(traceback.format_exception(*record.exc_info)))
        return msgspec.json.encode(entry, enc_hook=str).decode()


class ForPeople(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        extra = " ".join(
            f"{name}={value}"
            for name, value in vars(record).items()
            if name not in _OWN and not name.startswith("_") and name != "color_message"
        )
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = redacted(f"{stamp} {level}{record.getMessage()} {extra}".rstrip())
        if record.exc_info:
            line += "\n" + redacted("".join(traceback.format_exception(*record.exc_info)).rstrip())
        return line


def configure_logs(stream: IO[str] | None = None, *, level: str = "INFO", style: str = "auto") -> None:
    """Send all logs to the stream. ``style``: auto | people | json; auto looks for a terminal."""
    target = stream if stream is not None else sys.stderr
    if style == "auto":
        style = "people" if target.isatty() else "json"
    handler = logging.StreamHandler(target)
    handler.setFormatter(ForPeople() if style == "people" else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn.error", "httpx", "httpcore", "httpx2", "httpcore2", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
