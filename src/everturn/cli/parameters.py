"""The flags for the parameters of a model, as ``everturn run`` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from everturn.domain.parameters import OUTPUT_TOKENS_MAX, TEMPERATURE_MAX, Effort, Parameters

_EFFORTS = [effort.value for effort in Effort]
Command = TypeVar("Command", bound=Callable[..., object])


def parameter_options(command: Command) -> Command:
    """Gives the command ``--effort``, ``--temperature`` and ``--output-limit``."""
    options = (
        click.option(
            "--effort",
            type=click.Choice([effort.value for effort in Effort]),
            help="How much the model reasons first.",
        ),
        click.option("--temperature", type=click.FloatRange(0, TEMPERATURE_MAX), help="0 to 2."),
        click.option(
            "--output-limit", type=click.IntRange(1, OUTPUT_TOKENS_MAX), help="Maximum tokens in one answer."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def parameters_of(
    effort: str | None, temperature: float | None, output_limit: int | None
) -> Parameters | None:
    given = Parameters(None if effort is None else Effort(effort), temperature, output_limit)
    return None if given.is_empty else given
