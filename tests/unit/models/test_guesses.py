"""Between which efforts of reasoning one can choose, by the names of models."""

from __future__ import annotations

import pytest

from everturn.models.guesses import guess
from everturn.models.prices import PriceFacts
from everturn.models.providers import PROVIDERS


@pytest.mark.parametrize(
    ("provider", "model", "efforts", "temperature"),
    [
        ("openai", "gpt-5-mini", "minimal low medium high", False),
        ("openai", "gpt-5.1", "off low medium high", False),
        ("openai", "gpt-5-pro", "high", False),
        ("openai", "gpt-5-codex", "low medium high", False),
        ("openai", "gpt-5-chat-latest", "", True),
        ("openai", "o3", "low medium high", False),
        ("openai", "o4-mini-2025-04-16", "low medium high", False),
        ("openai", "gpt-4o", "", True),
        ("google", "gemini-2.5-pro", "low medium high", True),
        ("google", "gemini-2.5-flash-lite", "off low medium high", True),
        ("google", "gemini-3-pro-preview", "low high", True),
        ("google", "gemini-3-flash-preview", "minimal low medium high", True),
        ("google", "gemini-2.0-flash", "", True),
        ("google", "gemini-2.5-flash-image", "", True),
        ("anthropic", "claude-sonnet-4-5", "off low medium high", True),
        ("anthropic", "claude-opus-4-7", "off low medium high", False),
        ("anthropic", "claude-3-5-haiku-20241022", "", True),
        ("vllm", "openai/gpt-oss-20b", "low medium high", True),
        ("vllm", "qwen3", "", True),
    ],
)
def test_efforts_and_temperature(provider: str, model: str, efforts: str, temperature: bool) -> None:
    known = guess(PROVIDERS[provider], model, PriceFacts())
    assert " ".join(known.efforts) == efforts
    assert known.temperature is temperature
    assert known.reasoning is bool(efforts)
