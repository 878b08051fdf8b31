"""Sending a request, and again without the fields that the server rejects and that it can do without.

No standard says what a server accepts; its refusal does. It is noted, so that later requests leave the field
out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AsyncExitStack

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import JsonObject
from everturn.domain.model_errors import ModelTrouble
from everturn.models import failures
from everturn.models.wire import RequestSender, ResponseBytes, encode

_AGE_MAX_S = 600.0

Without = Callable[[JsonObject, str], JsonObject]  # the fields without one of them


class Refusals:
    """They expire after a while, because the server's configuration may change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def add(self, field: str) -> None:
        self._until[field] = self._clock.monotonic() + _AGE_MAX_S

    def __contains__(self, field: str) -> bool:
        return self._until.get(field, 0.0) > self._clock.monotonic()


class Sent(msgspec.Struct, frozen=True):
    """A request that the server has taken. ``left_out``: the fields that it does without."""

    answer: ResponseBytes
    body: bytes
    left_out: frozenset[str] = frozenset()


class CarefulSender:
    """Sends a request, and again without what the server does not take."""

    def __init__(self, caller: RequestSender, refusals: Refusals, without: Without) -> None:
        self._caller = caller
        self._refusals = refusals
        self._without = without

    async def send(
        self,
        stack: AsyncExitStack,
        path: str,
        headers: dict[str, str],
        fields: JsonObject,
        kept: Collection[str],
    ) -> Sent:
        """``kept``: what the request needs; it fails without. Raises ModelTrouble."""
        asked = frozenset(fields)
        for field in [name for name in fields if name in self._refusals and name not in kept]:
            fields = self._without(fields, field)
        while True:
            body = encode(fields)
            try:
                answer = await stack.enter_async_context(self._caller.post(path, headers, body))
                return Sent(answer, body, asked - frozenset(fields))
            except ModelTrouble as error:
                refused = failures.refused_field(error, fields)
                if refused is None or refused in kept:
                    raise
                self._refusals.add(refused)
                fields = self._without(fields, refused)


async def send_once(
    stack: AsyncExitStack, caller: RequestSender, path: str, headers: dict[str, str], body: bytes
) -> Sent:
    """Send a request to a server that is known to take all its fields. Raises ModelTrouble."""
    return Sent(await stack.enter_async_context(caller.post(path, headers, body)), body)


def left_out_notes(name: str, left_out: Collection[str]) -> list[str]:
    """What a person is told of a request that had to do without something that was asked for."""
    notes = {
        "tools": f"{name} takes no tools here, and answers without them",
        "temperature": f"{name} takes no temperature here, and answers without it",
    }
    return [note for field, note in notes.items() if field in left_out]
