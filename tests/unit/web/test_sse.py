from __future__ import annotations

import json

import pytest

from everturn.domain.errors import Invalid, InvalidId
from everturn.domain.events import Event, TextDelta, encode
from everturn.web.streams import sse

A, B = "ses_" + "a" * 26, "ses_" + "b" * 26


def event(position: int, session_id: str = A, text: str = "hi", turn_id: str | None = "trn_1") -> Event:
    return Event(session_id, position, turn_id, "text.delta", 99, encode(TextDelta(1, text)))


def test_a_frame_holds_the_stored_bytes_and_its_position() -> None:
    one = event(7, text='line\n"two"')
    frame = sse.frames([one])
    head, kind, data, *rest = frame.split(b"\n")
    assert (head, kind, rest) == (b"id: 7", b"event: text.delta", [b"", b""])
    assert one.data in data
    decoded = json.loads(data.removeprefix(b"data: "))
    assert decoded == {
        "session_id": A,
        "position": 7,
        "turn_id": "trn_1",
        "at": 99,
        "event": {"kind": "text.delta", "step": 1, "text": 'line\n"two"'},
    }


def test_an_event_without_a_turn_says_null() -> None:
    assert b'"turn_id":null' in sse.frames([event(1, turn_id=None)])


def test_the_shared_id_names_every_session_at_each_point() -> None:
    cursors = sse.Cursors({A: 1, B: 5})
    made = cursors.frames([event(2), event(3)]) + cursors.frames([event(6, B)])
    ids = [line.decode() for line in made.split(b"\n") if line.startswith(b"id:")]
    assert ids == [f"id: {A}:2,{B}:5", f"id: {A}:3,{B}:5", f"id: {A}:3,{B}:6"]
    assert sse.positions_from(cursors.text) == {A: 3, B: 6}
    cursors.drop(A)
    assert cursors.text == f"{B}:6"


@pytest.mark.parametrize("wrong", ["", "x", "-1", "+1", "1e3", "0x1", "²", "9" * 19])
def test_positions_are_plain_numbers(wrong: str) -> None:
    with pytest.raises(Invalid):
        sse.position_from(wrong)


def test_cursors_with_invalid_ids_are_refused() -> None:
    with pytest.raises(InvalidId):
        sse.positions_from("ses_x:1")
    with pytest.raises(Invalid):
        sse.positions_from(f"{A}:")
    assert sse.positions_from("") == {}


def test_the_last_frame_says_why_and_to_come_back_at_once() -> None:
    assert sse.last_bytes("shutdown") == b'retry: 150\nevent: stream.end\ndata: {"reason":"shutdown"}\n\n'
