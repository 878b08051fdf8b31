"""The parameters of a model, as a request gives them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from everturn.domain.parameters import OUTPUT_TOKENS_MAX, TEMPERATURE_MAX, Effort, Parameters


class GivenParameters(Parameters, frozen=True, forbid_unknown_fields=True):
    """``effort``: of reasoning. What is left out is as the session, the profile or the model says. A request
    with one that the model does not take is refused."""

    effort: Effort | None = None
    temperature: Annotated[float, Meta(ge=0, le=TEMPERATURE_MAX)] | None = None
    output_tokens_max: Annotated[int, Meta(ge=1, le=OUTPUT_TOKENS_MAX)] | None = None

    @property
    def plain(self) -> Parameters:
        return Parameters(self.effort, self.temperature, self.output_tokens_max)


def plain_of(given: GivenParameters | None) -> Parameters | None:
    return None if given is None else given.plain
