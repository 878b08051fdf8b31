"""Renders text for a platform, also if the platform's code fails."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from everturn.domain.delivery import NewPart
from everturn.domain.platform import Platform

_PLAIN_CHARS_MAX = 900  # every platform accepts this many, even if it has to escape each of them
_log = logging.getLogger("everturn.delivery")


def render_parts(platform: Platform, markdown: str) -> Sequence[NewPart]:
    """The parts that the platform makes of the text; if it fails, the text as it is, in pieces."""
    try:
        return platform.render(markdown)
    except Exception:  # the platform's own code: one answer must not stop all others
        _log.exception("%s could not render an answer; it is sent as it is", platform.name)
        starts = range(0, len(markdown), _PLAIN_CHARS_MAX)
        return [NewPart(markdown[start : start + _PLAIN_CHARS_MAX]) for start in starts]
