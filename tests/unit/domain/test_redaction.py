"""What looks like a secret is hidden, and nothing else."""

from __future__ import annotations

import pytest

from everturn.domain.redaction import redact

SECRETS = [
    "evt_01m7f8p4f78yfrx81m74a89gw3_9f86d081884c7d659a2feaa0c55ad015",
    "sin_01m7f8p4f78yfrx81m74a89gw3.9f86d081884c7d659a2feaa0c55ad015",
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-abcdefghijklmnop",
    "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
    "xapp-1-A0123456789-1234567890-abcdef",
    "MTAxMjM0NTY3ODkwMTIzNDU2.GabcDE.abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_secret_is_blotted_out(secret: str) -> None:
    told = redact(f"calling with {secret} now")
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
        ("Timeout at https://api.telegram.org/bot123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1/getMe", "AAHdq"),
        ("403, url=URL('wss://wss-1.slack.com/link/?ticket=42ab&app_id=7')", "42ab"),
        ("Cannot connect to https://files.slack.com/upload/v1/ABC123: closed", "ABC123"),
        ("https://bucket.example.org/a.txt?X-Amz-Signature=77fe", "77fe"),
    ],
)
def test_a_secret_is_known_by_its_name(text: str, secret: str) -> None:
    assert secret not in redact(text)


@pytest.mark.parametrize(
    "text", ["GET /api/sessions/ses_01m7f8p4f78yfrx81m74a89gw3 200", "42 tokens of output"]
)
def test_ordinary_words_stay(text: str) -> None:
    assert redact(text) == text


def test_a_long_text_of_addresses_is_read_once() -> None:
    text = "http://" * 200_000
    assert redact(text + "a?ticket-1") == text + "a?[redacted]"
