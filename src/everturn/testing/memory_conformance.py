# ruff: noqa: S101 - a test suite that is shipped
"""The tests that every memory provider must pass. Plug-in authors run them against their own provider.

    from everturn.testing.memory_conformance import ProviderConformance

    class TestMyProvider(ProviderConformance):
        def open(self):
            return MyProvider(...)

Each test opens fresh handles with ``open``. Handles that are opened in one test must share what they
remember, as two processes would. Needs pytest and anyio's plugin. A provider that recalls text it was given
(most do, in some form) also sets ``recalls_words = True``, so that the recalled text is checked; one that
records which turns it took in, not only which keys, sets ``takes_turns_once = True``.
"""

from __future__ import annotations

import itertools
from typing import ClassVar

import anyio
import pytest

from everturn.domain.memory import MemoryProvider, Segment
from everturn.domain.messages import Message, Role, Text
from everturn.memory.threaded_provider import ThreadedProvider

RECALL_S_MAX = 1.0  # a turn waits for it
OBSERVE_S_MAX = 10.0
COMMIT_S_MAX = 120.0


def segment_of(session: int, *words: str, owner: str = "ada", first_turn: int = 1) -> Segment:
    """A segment in which the user said these words, one turn each."""
    session_id = f"ses_{session:026d}"
    turns = tuple(f"trn_{session:013d}{number:013d}" for number in range(first_turn, first_turn + len(words)))
    messages = itertools.chain.from_iterable(
        (
            Message(f"msg_{turn[4:]}-0000", turn, Role.USER, (Text(text),), 1_750_000_000_000),
            Message(f"msg_{turn[4:]}-0001", turn, Role.ASSISTANT, (Text("I see."),), 1_750_000_000_001, 1),
        )
        for turn, text in zip(turns, words, strict=True)
    )
    return Segment(
        owner=owner,
        session_id=session_id,
        session_key=f"agent:main:web:{owner}",
        from_turn=turns[0],
        to_turn=turns[-1],
        turns=turns,
        messages=tuple(messages),
    )


@pytest.mark.anyio
class ProviderConformance:
    recalls_words: ClassVar[bool] = False
    takes_turns_once: ClassVar[bool] = False
    lives_apart: ClassVar[bool] = True  # as plug-ins do: each handle has its own thread and event loop

    def open(self) -> MemoryProvider:
        raise NotImplementedError("Return a fresh handle of your provider.")

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_it_has_a_name_that_can_be_stored(self) -> None:
        provider = self.open()
        assert isinstance(provider.name, str)
        assert provider.name.strip() == provider.name != ""
        assert self.open().name == provider.name, "every handle has the same name"
        await provider.close()

    async def test_recalling_from_nothing_gives_a_text_in_time(self) -> None:
        provider = self.open()
        with anyio.fail_after(RECALL_S_MAX):
            for prompt in ("", "What do you know?", "x" * 100_000, '"', "\x00 \ufffd 日本語"):
                assert isinstance(await provider.recall("unknown owner", "key", prompt), str)
        await provider.close()

    async def test_the_same_prompt_recalls_the_same_bytes(self) -> None:
        provider = self.open()
        await provider.commit(segment_of(1, "I live in Lisbon.", "I play the viola."))
        first = await provider.recall("ada", "key", "Where do I live, and what do I play?")
        assert await provider.recall("ada", "key", "Where do I live, and what do I play?") == first
        await provider.close()

    async def test_observing_returns_soon_and_commits_nothing_by_itself(self) -> None:
        provider = self.open()
        segment = segment_of(1, "I live in Lisbon.")
        with anyio.fail_after(OBSERVE_S_MAX):
            await provider.observe("ada", segment.session_id, segment.messages)
            await provider.observe("ada", segment.session_id, ())
        await provider.close()

    async def test_a_commit_is_remembered_by_the_next_handle(self) -> None:
        provider = self.open()
        with anyio.fail_after(COMMIT_S_MAX):
            await provider.commit(segment_of(1, "I live in Lisbon."))
        await provider.close()
        again = self.open()
        recalled = await again.recall("ada", "key", "Do I live in Lisbon?")
        assert not self.recalls_words or "lisbon" in recalled.lower()
        await again.close()

    async def test_the_same_key_twice_is_taken_in_once(self) -> None:
        provider = self.open()
        segment = segment_of(1, "I live in Lisbon.")
        await provider.commit(segment)
        first = await provider.recall("ada", "key", "Do I live in Lisbon?")
        await provider.commit(segment)
        other = self.open()  # as after a crash: another process repeats the commit
        await other.commit(segment)
        assert await other.recall("ada", "key", "Do I live in Lisbon?") == first
        await provider.close()
        await other.close()

    async def test_a_turn_that_comes_again_under_another_key_is_taken_in_once(self) -> None:
        """After an unknown outcome, a turn that the user undid and restored is sent again with later ones."""
        if not self.takes_turns_once:
            pytest.skip("it records keys, not turns: such a turn may be taken in twice")
        provider = self.open()
        await provider.commit(segment_of(1, "I live in Lisbon.", "I play the viola."))
        first = await provider.recall("ada", "key", "Do I play the viola?")
        await provider.commit(segment_of(1, "I play the viola.", "I collect stamps.", first_turn=2))
        assert await provider.recall("ada", "key", "Do I play the viola?") == first
        recalled = await provider.recall("ada", "key", "Do I collect stamps?")
        assert not self.recalls_words or "stamps" in recalled.lower(), "the new turn is not lost"
        await provider.close()

    async def test_handles_on_threads_of_their_own_commit_at_once(self) -> None:
        """As the server runs plug-ins: one thread per agent."""
        if not self.lives_apart:
            pytest.skip("it is not a plug-in")
        handles = [ThreadedProvider(self.open, "apart") for _ in range(4)]
        with anyio.fail_after(COMMIT_S_MAX):
            async with anyio.create_task_group() as group:
                for number, handle in enumerate(handles, start=1):
                    group.start_soon(handle.commit, segment_of(number, f"My number{number} is blue."))
        for number in range(1, len(handles) + 1):
            recalled = await handles[0].recall("ada", "key", f"Which colour has number{number}?")
            assert not self.recalls_words or f"number{number}" in recalled.lower(), "none is lost"
        for handle in handles:
            await handle.close()

    async def test_a_commit_that_is_cancelled_can_be_repeated(self) -> None:
        provider = self.open()
        segment = segment_of(1, "I live in Lisbon.")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await provider.commit(segment)
        with anyio.fail_after(COMMIT_S_MAX):
            await provider.commit(segment)
        recalled = await provider.recall("ada", "key", "Do I live in Lisbon?")
        assert not self.recalls_words or "lisbon" in recalled.lower()
        await provider.close()

    async def test_owners_do_not_see_each_other(self) -> None:
        provider = self.open()
        await provider.commit(segment_of(1, "I live in Lisbon.", owner="ada"))
        await provider.commit(segment_of(2, "I live in Oslo.", owner="eve"))
        assert "lisbon" not in (await provider.recall("eve", "key", "Lisbon or Oslo?")).lower()
        assert "oslo" not in (await provider.recall("ada", "key", "Lisbon or Oslo?")).lower()
        await provider.close()

    async def test_sessions_can_be_committed_at_once(self) -> None:
        provider = self.open()
        with anyio.fail_after(COMMIT_S_MAX):
            async with anyio.create_task_group() as group:
                for number in range(1, 6):
                    group.start_soon(provider.commit, segment_of(number, f"My number {number} is blue."))
        recalled = await provider.recall("ada", "key", "Which number is blue?")
        assert not self.recalls_words or "blue" in recalled.lower()
        await provider.close()

    async def test_a_segment_without_words_is_taken_in(self) -> None:
        provider = self.open()
        empty = segment_of(1, "")
        await provider.commit(empty)
        await provider.close()
