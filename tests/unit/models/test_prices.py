from __future__ import annotations

import subprocess
import sys

import pytest

from everturn.domain.turns import Usage
from everturn.models.prices import PriceFacts, Prices

pytestmark = pytest.mark.anyio

ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com/v1"


async def test_a_known_model_has_a_price_and_a_window() -> None:
    pytest.importorskip("genai_prices")
    prices = Prices()
    facts = await prices.facts(ANTHROPIC, "claude-3-5-haiku-latest")
    assert facts.context_tokens == 200_000
    assert facts.input_usd is not None
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    assert await prices.cost(ANTHROPIC, "claude-3-5-haiku-latest", usage) == pytest.approx(facts.input_usd)


async def test_cached_input_is_cheaper_and_written_cache_dearer() -> None:
    pytest.importorskip("genai_prices")
    prices = Prices()
    plain = await prices.cost(ANTHROPIC, "claude-3-5-haiku-latest", Usage(10_000, 0))
    cached = await prices.cost(ANTHROPIC, "claude-3-5-haiku-latest", Usage(10_000, 0, 9_000))
    written = await prices.cost(ANTHROPIC, "claude-3-5-haiku-latest", Usage(10_000, 0), 9_000)
    assert cached is not None
    assert plain is not None
    assert written is not None
    assert cached < plain < written


@pytest.mark.parametrize(
    ("address", "model"),
    [
        (OPENAI, "nonsense-9"),
        ("http://127.0.0.1:1/v1", "gpt-4o"),
        ("https://llm.example/v1", "claude-3-haiku"),
    ],
)
async def test_unknown_stays_unknown(address: str, model: str) -> None:
    assert await Prices().facts(address, model) == PriceFacts()
    assert await Prices().cost(address, model, Usage(10, 10)) is None


async def test_usage_that_is_not_known_has_no_price() -> None:
    assert await Prices().cost(OPENAI, "gpt-4o", Usage(10, None)) is None


async def test_without_the_package_everything_is_unknown() -> None:
    prices = Prices("no_such_package_for_prices")
    assert await prices.facts(OPENAI, "gpt-4o") == PriceFacts()
    assert await prices.cost(OPENAI, "gpt-4o", Usage(10, 10)) is None


def test_importing_the_room_does_not_import_the_package() -> None:
    code = (
        "import sys, everturn.models; sys.exit('genai_prices' in sys.modules or 'xllamacpp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
