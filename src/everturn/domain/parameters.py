"""How a model is to answer: reasoning effort, temperature, output limit."""

from __future__ import annotations

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.words import Words

TEMPERATURE_MAX = 2.0
OUTPUT_TOKENS_MAX = 10_000_000


class Effort(Words):
    """How much a model reasons before it answers."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Parameters(msgspec.Struct, frozen=True, omit_defaults=True):
    """None: as the model does by itself, or as the next in line says (message, session, profile)."""

    effort: Effort | None = None
    temperature: float | None = None
    output_tokens_max: int | None = None

    @property
    def is_empty(self) -> bool:
        return self == NO_PARAMETERS

    def over(self, base: Parameters | None) -> Parameters:
        """These parameters, and those of ``base`` where these say nothing."""
        if base is None:
            return self
        return Parameters(
            self.effort if self.effort is not None else base.effort,
            self.temperature if self.temperature is not None else base.temperature,
            self.output_tokens_max if self.output_tokens_max is not None else base.output_tokens_max,
        )


NO_PARAMETERS = Parameters()


def check_parameters(given: Parameters) -> None:
    """Refuse what no model takes. Raises Invalid."""
    if given.effort is not None and not given.effort.is_known:
        raise Invalid(
            f"There is no reasoning effort {given.effort.value[:40]!r}.",
            hint=f"Possible: {', '.join(Effort)}.",
        )
    if given.temperature is not None and not 0 <= given.temperature <= TEMPERATURE_MAX:
        raise Invalid(
            f"The temperature is {given.temperature:g}.", hint=f"It can be from 0 to {TEMPERATURE_MAX:g}."
        )
    if given.output_tokens_max is not None and not 0 < given.output_tokens_max <= OUTPUT_TOKENS_MAX:
        raise Invalid(
            f"The output limit is {given.output_tokens_max} tokens.",
            hint=f"It can be from 1 to {OUTPUT_TOKENS_MAX}.",
        )
