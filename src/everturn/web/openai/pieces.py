"""The parts in which an answer arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Union

import msgspec

from everturn.domain.messages import Call
from everturn.domain.turns import Turn, Usage


class Piece(msgspec.Struct, frozen=True):
    """A part of an answer on its way; the first one of an agent's answer says which turn it is."""

    text: str = ""
    reasoning: str = ""
    turn: Turn | None = None


class AnswerEnd(msgspec.Struct, frozen=True):
    finish: str = "stop"
    calls: tuple[Call, ...] = ()
    usage: Usage = Usage()


Answering = AsyncGenerator[Union[Piece, AnswerEnd], None]
