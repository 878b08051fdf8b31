from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.models.sse import EventTooLong, SseReader

_STREAM = (
    'data: {"a":"é€😀"}\n\n: a comment\n\nevent: x\ndata: two\ndata:lines\n\n'
    "id: 7\n\ndata:\n\ndata: [DONE]\n\n"
)
_EVENTS = ['{"a":"é€😀"}'.encode(), b"two\nlines", b"[DONE]"]


def read(pieces: list[bytes]) -> list[bytes]:
    reader = SseReader()
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_events_are_whole_wherever_the_stream_is_torn(line_end: str) -> None:
    stream = _STREAM.replace("\n", line_end).encode()
    for cut in range(len(stream) + 1):
        assert read([stream[:cut], stream[cut:]]) == _EVENTS


@given(st.lists(st.integers(0, 200)), st.sampled_from(["\n", "\r\n", "\r"]))
def test_events_are_whole_in_any_number_of_pieces(cuts: list[int], line_end: str) -> None:
    stream = _STREAM.replace("\n", line_end).encode()
    edges = [0, *sorted(cuts), len(stream)]
    assert read([stream[start:end] for start, end in pairwise(edges)]) == _EVENTS


def test_the_last_event_counts_without_its_empty_line() -> None:
    reader = SseReader()
    assert reader.feed(b"data: a\n\ndata: b") == [b"a"]
    assert reader.rest() == b"b"
    assert reader.rest() is None


def test_what_servers_send_besides_the_rules() -> None:
    assert read([b'\xef\xbb\xbfdata: {"a":1}\n\n']) == [b'{"a":1}']
    assert read([b'error: {"code":400}\n\ndata: [DONE]\n\n']) == [b'{"error": {"code":400}}', b"[DONE]"]
    assert read([b"data: \n\ndata:\n\nerrors: {}\n\nerror: none\n\n"]) == []
    reader = SseReader()
    reader.feed(b'{"error": "promised events"}')
    assert reader.rest() == b'{"error": "promised events"}'


def test_an_event_without_end_is_refused() -> None:
    reader = SseReader(event_bytes_max=100)
    assert reader.feed(b"data: " + b"x" * 60) == []
    with pytest.raises(EventTooLong):
        reader.feed(b"x" * 60)
