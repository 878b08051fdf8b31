"""A request is the same bytes whether its beginning was encoded before or not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import httpx2
import msgspec
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.ids import message_id
from everturn.domain.messages import (
    AnyPart,
    Attachment,
    Call,
    Message,
    Outcome,
    Reasoning,
    Result,
    Role,
    Summary,
    Text,
)
from everturn.domain.model import Abilities, ModelRequest
from everturn.models import history_cache as module
from everturn.models.anthropic_wire import AnthropicModel
from everturn.models.history_cache import HistoryCache
from everturn.models.openai_wire import OpenAIModel
from everturn.models.wire import Target

Wire = type[OpenAIModel] | type[AnthropicModel]
TARGET = Target(
    "some:m", "m", "http://nowhere", abilities=Abilities(tools=True, images=True), continues_by="last"
)


def model_of(wire: Wire, cache: HistoryCache | None = None) -> OpenAIModel | AnthropicModel:
    client = cast("httpx2.AsyncClient", None)  # nothing is sent
    return wire(TARGET, client, SystemClock(), cache=cache)


@pytest.fixture(params=[OpenAIModel, AnthropicModel])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr(module, "MESSAGES_MIN", 4)
    return cast("Wire", request.param)


class Talk:
    """A history that grows by one turn after the other, of every kind."""

    def __init__(self, seed: int, *, has_files: bool) -> None:
        self._choice = random.Random(seed)
        self._has_files = has_files
        self._count = 0
        self.messages: list[Message] = []

    def _add(self, role: Role, *parts: AnyPart) -> None:
        self._count += 1
        turn = f"trn_{self._count:026d}"
        self.messages.append(Message(message_id(turn, 0), turn, role, parts, 0))

    def turn(self) -> None:
        choice = self._choice
        for _ in range(choice.choice((1, 1, 1, 2, 3))):  # more than one: steered, or the turn before failed
            self._add(Role.USER, Text(f"question {self._count}"))
        if self._has_files and choice.random() < 0.1:
            self._add(Role.USER, Text("look"), Attachment("fil_1", "a.png", "image/png", 3))
        for _ in range(choice.choice((0, 0, 1, 2))):
            call = Call(f"call_{self._count}", "look", "{}")
            self._add(Role.ASSISTANT, Reasoning("hm", "some:m"), Text("let me see"), call)  # type: ignore[arg-type]  # parts of any kind
            self._add(Role.TOOL, Result(call.id, "look", "seen", Outcome.OK))
        last = choice.choice(("fine", "fine", "fine", "abandoned", "nothing"))
        if last != "nothing":
            self._add(Role.ASSISTANT, Text(f"answer {self._count}", is_abandoned=last == "abandoned"))


def request_of(messages: list[Message], prefix: str = "") -> ModelRequest:
    files = {"fil_1": b"abc"} if len(messages) % 2 else {}
    return ModelRequest(system="Be brief.", messages=tuple(messages), files=files, prefix=prefix)


@pytest.mark.parametrize("has_files", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_growing_history_is_the_same_bytes_as_one_sent_for_the_first_time(
    wire: Wire, seed: int, has_files: bool
) -> None:
    talk, choice = Talk(seed, has_files=has_files), random.Random(seed)
    warm = model_of(wire, HistoryCache())
    for _ in range(25):
        talk.turn()
        if choice.random() < 0.2:  # undone, and said in another way
            del talk.messages[-choice.randrange(1, 6) :]
            talk.turn()
        for prefix in ("", "half an ans"):
            request = request_of([*talk.messages, _question("and now?")], prefix)
            assert warm.body(request) == model_of(wire).body(request)


@pytest.mark.parametrize(
    "change",
    [
        lambda messages: [_said_with(messages[0], "Likes tea."), *messages[1:]],
        lambda messages: [_summary(messages[9].id), *messages[10:]],
        lambda messages: messages[10:],
        lambda messages: messages[:20],
    ],
    ids=["memory", "summary", "shorter", "undone"],
)
def test_a_history_that_does_not_extend_the_one_before_is_rebuilt(
    wire: Wire, change: Callable[[list[Message]], list[Message]]
) -> None:
    talk = Talk(1, has_files=False)
    for _ in range(20):
        talk.turn()
    warm = model_of(wire, HistoryCache())
    warm.body(request_of([*talk.messages, _question("and now?")]))
    request = request_of([*change(talk.messages), _question("and now?")])
    assert warm.body(request) == model_of(wire).body(request)


def test_what_was_encoded_is_not_shaped_again(wire: Wire) -> None:
    messages = [message for n in range(50) for message in (_question(f"q{n}"), _answer(f"a{n}"))]
    cache = HistoryCache()
    shaped: list[int] = []

    def build(part: object) -> list[dict[str, str]]:
        shaped.append(len(part))  # type: ignore[arg-type]  # a part is bytes here
        return [{"role": "x"}] * shaped[-1]

    for count in (100, 102, 104):
        pieces, rest = cache.split(TARGET, [*messages, _question("now")], build)
        assert (len(pieces), len(rest)) == (count, 1)
        messages += [_question("more"), _answer("of it")]
    assert shaped == [100, 2, 2]


def test_the_room_for_beginnings_is_bounded_and_the_longest_unused_goes_first(wire: Wire) -> None:
    cache = HistoryCache(bytes_max=3_000)
    model = model_of(wire, cache)
    for _ in range(10):
        model.body(
            request_of([*(_answer("x" * 100) for _ in range(8)), _question("now"), *[_question("?")] * 3])
        )
        assert 0 < cache.size <= 3_000


_numbers = iter(range(10**6))


def _message(role: Role, text: str) -> Message:
    turn = f"trn_{next(_numbers):026d}"
    return Message(message_id(turn, 0), turn, role, (Text(text),), 0)


def _question(text: str) -> Message:
    return _message(Role.USER, text)


def _answer(text: str) -> Message:
    return _message(Role.ASSISTANT, text)


def _said_with(first: Message, recalled: str) -> Message:
    return msgspec.structs.replace(first, parts=(Text(recalled), *first.parts))


def _summary(covers: str) -> Message:
    return msgspec.structs.replace(_question(""), parts=(Summary("so far", covers),))
