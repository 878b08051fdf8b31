"""What a provider's refusal means: its kind, and what a user can do about it."""

from __future__ import annotations

import pytest

from everturn.domain.errors import Remedy
from everturn.models.failures import _wait_hint, from_event, from_status


@pytest.mark.parametrize(
    ("status", "body", "remedy"),
    [
        (401, b'{"error": {"message": "bad key"}}', Remedy.OPEN_SETTINGS),
        (403, b'{"error": {"message": "not for this key"}}', Remedy.OPEN_SETTINGS),
        (402, b'{"error": {"message": "pay first"}}', Remedy.CHOOSE_MODEL),
        (404, b'{"error": {"message": "no such model"}}', Remedy.CHOOSE_MODEL),
        (413, b"", Remedy.CHOOSE_MODEL),
        (429, b'{"error": {"message": "slow down"}}', Remedy.RETRY),
        (503, b"", Remedy.RETRY),
    ],
)
def test_a_refused_request_names_its_remedy(status: int, body: bytes, remedy: Remedy) -> None:
    trouble = from_status("openai", status, {}, body, 0, lambda text: text)
    assert trouble.remedy is remedy


def test_an_error_inside_the_stream_names_its_remedy() -> None:
    error = {"type": "authentication_error", "message": "bad key", "code": 401}
    assert from_event("openai", error, lambda text: text).remedy is Remedy.OPEN_SETTINGS
    assert from_event("openai", {"message": "broken"}, lambda text: text).remedy is Remedy.RETRY


@pytest.mark.parametrize(
    ("seconds", "words"),
    [("1", "1 second."), ("120", "120 seconds."), ("121", "3 minutes."), ("86400", "24 hours.")],
)
def test_the_wait_that_a_provider_asks_for_is_said_in_words(seconds: str, words: str) -> None:
    assert _wait_hint(float(seconds)) == f"The provider asks to wait {words}"
