"""Which models a turn calls, and with which parameters: what was asked for, as far as the model takes it.

Parameters are checked when a message or a session's change asks for them. What a session, a profile or an
earlier answer asked for may meet a model that does not take it, e.g. a fallback: then it is left out, and the
turn says so.
"""

from __future__ import annotations

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.model import Abilities, ModelRequest, Models
from everturn.domain.model_errors import ModelTrouble
from everturn.domain.parameters import NO_PARAMETERS, Effort, Parameters, check_parameters
from everturn.domain.sessions import Session
from everturn.domain.turns import Turn
from everturn.engine.services import TurnServices


def first_model(services: TurnServices, session: Session, model: str | None, profile: str | None) -> str:
    """The model of a turn that asks for this model and this profile, if it does."""
    of_profile = services.settings.profile(profile or session.profile).model
    return model or session.model or of_profile or services.default_model


def model_chain(services: TurnServices, session: Session, turn: Turn) -> list[str]:
    """The requested model, then the fallbacks, without duplicates."""
    settings = services.settings
    profile = settings.profile(turn.profile or session.profile)
    first = first_model(services, session, turn.model, turn.profile)
    rest = settings.fallback_models if profile.fallback_models is None else profile.fallback_models
    return list(dict.fromkeys([first, *rest]))


def parameters_of(services: TurnServices, session: Session, turn: Turn) -> Parameters:
    """The turn's, which include those that its session had when it was accepted; then the profile's."""
    profile = services.settings.profile(turn.profile or session.profile)
    return (turn.parameters or NO_PARAMETERS).over(profile.parameters)


class Fitted(msgspec.Struct, frozen=True):
    """``left_out``: what the model does not take, in words."""

    parameters: Parameters = NO_PARAMETERS
    left_out: tuple[str, ...] = ()

    @property
    def journaled(self) -> Parameters | None:
        return None if self.parameters.is_empty else self.parameters

    def apply(self, request: ModelRequest) -> ModelRequest:
        if self.parameters.is_empty:
            return request
        limits = (self.parameters.output_tokens_max, request.output_tokens_max)
        return msgspec.structs.replace(
            request,
            effort=self.parameters.effort,
            temperature=self.parameters.temperature,
            output_tokens_max=min((limit for limit in limits if limit is not None), default=None),
        )


def fit(given: Parameters, abilities: Abilities) -> Fitted:
    if given.is_empty:
        return Fitted()
    effort, temperature, left_out = given.effort, given.temperature, []
    if effort is not None and effort not in abilities.efforts:
        if effort is not Effort.OFF or abilities.efforts:  # nothing to switch off
            left_out.append(f"reasoning effort {effort}")
        effort = None
    if temperature is not None and not abilities.temperature:
        left_out.append("a temperature")
        temperature = None
    return Fitted(Parameters(effort, temperature, given.output_tokens_max), tuple(left_out))


async def refuse_unfit(models: Models, given: Parameters, name: str | None) -> None:
    """Refuse what this model (None: the default) does not take. Raises Invalid.

    A model that cannot be asked now refuses nothing: its turn says what is wrong with it.
    """
    check_parameters(given)
    if given.is_empty:
        return
    try:
        model = await models.get(name)
    except ModelTrouble:
        return
    left_out = fit(given, model.abilities).left_out
    if not left_out:
        return
    efforts = ", ".join(model.abilities.efforts)
    hint = "Leave it out, or choose another model."
    if efforts and given.effort is not None and given.effort not in model.abilities.efforts:
        hint = f"Its efforts: {efforts}."
    raise Invalid(f"{model.name} does not take {' or '.join(left_out)}.", hint=hint)
