"""Paths of endpoints, for tests that walk over all of them."""

from __future__ import annotations

import re

from everturn.web.http.routing import PARAMS, AnyEndpoint


def path_of(endpoint: AnyEndpoint) -> str:
    """The endpoint's path with a well-formed id, or ``x``, for each parameter. None of them exists."""
    return re.sub(r"{(\w+)}", lambda match: _value_of(match[1]), endpoint.path)


def _value_of(name: str) -> str:
    prefix = PARAMS[name].prefix
    return f"{prefix}_{'0' * 26}" if prefix else "x"
