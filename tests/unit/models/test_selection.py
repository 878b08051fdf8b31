from __future__ import annotations

import pytest

from everturn.models.selection import can_chat, suggest_model


@pytest.mark.parametrize(
    "name",
    [
        "babbage-002",
        "davinci-002",
        "text-embedding-3-small",
        "all-minilm:latest",
        "nomic-embed-text",
        "bge-m3",
        "whisper-1",
        "tts-1-hd",
        "gpt-4o-mini-tts",
        "dall-e-3",
        "gpt-image-1",
        "omni-moderation-latest",
        "gpt-3.5-turbo-instruct",
        "gpt-4o-realtime-preview",
        "llama-guard3:8b",
    ],
)
def test_models_for_other_work_are_known_by_their_names(name: str) -> None:
    assert not can_chat(name)


@pytest.mark.parametrize(
    "name",
    ["gpt-5-mini", "claude-sonnet-4-5", "qwen3:8b", "llama3.2", "mistral-large-instruct", "o3", "gemma3"],
)
def test_models_for_conversations_are_not_left_out(name: str) -> None:
    assert can_chat(name)


def test_what_the_provider_says_counts_before_the_name() -> None:
    assert can_chat("my-embedder", outputs=("text",))
    assert not can_chat("gpt-5", outputs=("image",))
    assert not can_chat("mistral-x", capabilities={"completion_chat": False})
    assert not can_chat("x", capabilities=["embedding"])
    assert can_chat("x", kind="chat")
    assert not can_chat("x", kind="embedding")


def test_the_known_one_comes_first_then_the_only_one_and_else_the_person_chooses() -> None:
    assert suggest_model(["gpt-4o", "gpt-5-mini"], "gpt-5-mini") == "gpt-5-mini"
    dated = ["claude-sonnet-4-5-20250929", "claude-sonnet-4-5-20260101", "claude-opus-4-1"]
    assert suggest_model(dated, "claude-sonnet-4-5") == "claude-sonnet-4-5-20260101"
    assert suggest_model(["qwen3:8b"]) == "qwen3:8b"
    assert suggest_model(["a", "b"]) is None
    assert suggest_model([]) is None
