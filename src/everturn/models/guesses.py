"""What is known of a model by its provider and its name, where its server does not say it."""

from __future__ import annotations

import msgspec

from everturn.domain.model import Abilities
from everturn.models.anthropic_wire import generation_of
from everturn.models.prices import PriceFacts
from everturn.models.providers import Provider
from everturn.models.reasoning_efforts import Efforts, anthropic_efforts, gemini_efforts, openai_efforts


def guess(provider: Provider, model: str, facts: PriceFacts) -> Abilities:
    continues = bool(provider.continues_by)
    if provider.wire == "anthropic":
        continues = generation_of(model).takes_prefix
    known = Abilities(images=provider.images, continues=continues, context_tokens=facts.context_tokens)
    return with_efforts(provider, model, known)


def with_efforts(provider: Provider, model: str, known: Abilities) -> Abilities:
    """With the efforts of reasoning between which one can choose, and whether it takes a temperature."""
    efforts = known.efforts or _efforts(provider, model)
    return msgspec.structs.replace(
        known,
        efforts=efforts,
        reasoning=known.reasoning or bool(efforts),
        temperature=known.temperature and _takes_temperature(provider, model, efforts),
    )


def _efforts(provider: Provider, model: str) -> Efforts:
    if provider.wire == "anthropic":
        return anthropic_efforts(generation_of(model).version)
    return gemini_efforts(model) if provider.wire == "gemini" else openai_efforts(model)


def _takes_temperature(provider: Provider, model: str, efforts: Efforts) -> bool:
    if provider.wire == "anthropic":
        return generation_of(model).takes_temperature
    is_reasoner = provider.wire in ("openai", "responses") and bool(openai_efforts(model))
    return not is_reasoner or "gpt-oss" in model.lower()
