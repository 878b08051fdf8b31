"""Logs: plain lines on a terminal, JSON lines otherwise, with secrets redacted in both.

What a client sends can be in every line (a path, a header, an error's text). None of it reaches the terminal
as a control character: no escape sequence, no line break that would begin a line of its own.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import IO

import msgspec

from everturn.domain.redaction import redact

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def plain(text: str) -> str:
    """The text on one line, with every character that is not printable escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _text(value: str) -> str:
    # A file's name can hold halves of characters, which JSON cannot: the whole line would be lost.
    return redact(value).encode("utf-8", "backslashreplace").decode()


def _plain_json(line: str) -> str:
    """The same JSON; JSON itself escapes only the first 32 characters."""
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _text(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _OWN and not name.startswith("_") and name != "color_message":
                entry[name] = _text(value) if isinstance(value, str) else value
        if record.exc_info:
            entry["error"] = _text("".join(traceback.format_exception(*record.exc_info)))
        return _plain_json(msgspec.json.encode(entry, enc_hook=str).decode())


class ForPeople(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        extra = " ".join(
            f"{name}={value}"
            for name, value in vars(record).items()
            if name not in _OWN and not name.startswith("_") and name != "color_message"
        )
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = plain(redact(f"{stamp} {level}{record.getMessage()} {extra}".rstrip()))
        if record.exc_info:
            trace = redact("".join(traceback.format_exception(*record.exc_info)).rstrip())
            line = "\n".join([line, *map(plain, trace.split("\n"))])
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
    # Debug lines are ours alone: libraries would log what they send, keys included.
    root.setLevel(max(logging.INFO, logging.getLevelName(level.upper())))
    logging.getLogger("everturn").setLevel(level.upper())
    for noisy in ("uvicorn.error", "httpx", "httpcore", "httpx2", "httpcore2", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
