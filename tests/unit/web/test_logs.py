from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from everturn.web.logs import ForPeople, JsonLines


def logged(formatter: logging.Formatter) -> str:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    try:
        raise RuntimeError("password=hunter22")
    except RuntimeError:
        record = logging.LogRecord(
            "everturn", logging.ERROR, "", 1, "failed %s", ("sk-abcdefghijkl",), sys.exc_info()
        )
        record.ms = 5
        handler.emit(record)
    return out.getvalue()


def test_json_lines_hold_the_extras_and_no_secret() -> None:
    line = logged(JsonLines())
    entry = json.loads(line)
    assert (entry["level"], entry["ms"], entry["message"]) == ("error", 5, "failed [redacted]")
    assert "RuntimeError" in entry["error"]
    assert "hunter22" not in line


def test_lines_for_people_are_redacted_too() -> None:
    text = logged(ForPeople())
    assert "error: failed [redacted] ms=5" in text
    assert "hunter22" not in text


HOSTILE = "\x1b]0;owned\x07 \x9b2J \r\n12:00:00 signed in \u202eevil\u200b \U000e0041"


@pytest.mark.parametrize("formatter", [ForPeople(), JsonLines()])
def test_a_line_has_no_character_that_a_terminal_would_obey(formatter: logging.Formatter) -> None:
    record = logging.makeLogRecord({"msg": "%s refused", "args": (HOSTILE,), "levelname": "INFO"})
    record.levelno, record.agent = logging.INFO, HOSTILE
    line = formatter.format(record)
    assert line.isprintable()
    if isinstance(formatter, JsonLines):
        assert json.loads(line)["message"] == f"{HOSTILE} refused"
    else:
        assert "\\x1b]0;owned" in line


@pytest.mark.parametrize("formatter", [ForPeople(), JsonLines()])
def test_the_trace_of_an_error_is_plain_too(formatter: logging.Formatter) -> None:
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError:
        record = logging.LogRecord("everturn", logging.ERROR, "", 1, "failed", (), sys.exc_info())
    lines = formatter.format(record).split("\n")
    assert all(line.isprintable() for line in lines)
    assert "RuntimeError" in "".join(lines)


@pytest.mark.parametrize("formatter", [ForPeople(), JsonLines()])
def test_a_name_that_is_not_unicode_does_not_cost_the_line(formatter: logging.Formatter) -> None:
    record = logging.makeLogRecord({"msg": "cannot read %s", "args": ("caf\udce9",), "levelno": 20})
    assert "udce9" in formatter.format(record)
