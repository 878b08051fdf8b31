from __future__ import annotations

import pytest

from everturn.testing import FakeClock
from everturn.tools.terminal.output import Capture, LiveOutput, head_and_tail


@pytest.mark.anyio
async def test_live_output_comes_in_at_most_ten_pieces_a_second_and_none_is_lost() -> None:
    clock, seen = FakeClock(), []

    async def emit(text: str) -> None:
        seen.append(text)

    live = LiveOutput(emit, clock)
    for n in range(5):
        await live.add(b"%d" % n)
    assert seen == ["0"]
    assert live.due_in_s == pytest.approx(0.1)
    await clock.advance(0.1)
    assert live.due_in_s == 0
    await live.flush()
    assert seen == ["0", "1234"]
    assert live.due_in_s is None


@pytest.mark.anyio
async def test_live_output_ends_at_its_limit_and_half_letters_wait() -> None:
    clock, seen = FakeClock(), []

    async def emit(text: str) -> None:
        seen.append(text)

    live = LiveOutput(emit, clock, bytes_max=10)
    letter = "ß".encode()
    await live.add(letter[:1])
    await live.add(letter[1:])
    assert "".join(seen) == "ß"
    await live.add(b"x" * 50)
    await live.add(b"y" * 50)
    await live.flush()
    assert "".join(seen).startswith("ßxxxxxxxx\n[")  # bytes, not letters
    assert "y" not in "".join(seen).replace("only", "")


def test_what_is_kept_has_a_bound_and_says_what_is_missing() -> None:
    capture = Capture(100)
    for n in range(1000):
        capture.add(b"%03d\n" % n)
    content = capture.content()
    assert content.startswith(b"000\n001\n")
    assert content.endswith(b"998\n999\n")
    assert b"3,900 bytes left out" in content
    assert len(content) < 150


def test_head_and_tail_are_cut_at_line_ends() -> None:
    data = b"".join(b"line %d\n" % n for n in range(10_000))
    text, is_cut = head_and_tail(data, 2000)
    assert is_cut
    lines = text.splitlines()
    assert all(line.startswith(("line ", "[…")) or not line for line in lines)
    assert (lines[0], lines[-1]) == ("line 0", "line 9999")
    assert head_and_tail(b"short", 2000) == ("short", False)
