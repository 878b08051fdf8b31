from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from everturn.web.logs import ForPeople, JsonLines, redacted

SECRETS = [
    "evt_01m7f8p4f78yfrx81m74a89gw3_9f86d081884c7d659a2feaa0c55ad015",
    "sin_01m7f8p4f78yfrx81m74a89gw3.9f86d081884c7d659a2feaa0c55ad015",
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-abcdefghijklmnop",
    "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_secret_is_blotted_out(secret: str) -> None:
    told = redacted(f"calling with {secret} now")
    assert secret not in told
    assert told.startswith("calling with ")
    assert told.endswith(" now")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc123def456", "abc123def456"),
        ('{"password": "hunter22"}', "hunter22"),
        ("api_key=abcdef&x=1", "abcdef"),
        ("postgresql://joe:s3cret@db/x", "s3cret"),
        ("Cookie: everturn=abc", "everturn=abc"),
    ],
)
def test_a_secret_is_known_by_its_name(text: str, secret: str) -> None:
    assert secret not in redacted(text)


@pytest.mark.parametrize(
    "text", ["GET /api/sessions/ses_01m7f8p4f78yfrx81m74a89gw3 200", "42 tokens of output"]
)
def test_ordinary_words_stay(text: str) -> None:
    assert redacted(text) == text


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
