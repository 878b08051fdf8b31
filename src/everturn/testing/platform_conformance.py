# ruff: noqa: S101 - a test suite that is shipped
"""The tests that every ``Platform`` must pass, against a stand-in of its service.

    class TestMyPlatform(PlatformConformance):
        @pytest.fixture
        async def service(self) -> AsyncIterator[Service]: ...

        @pytest.fixture
        def platform(self, service: Service) -> Platform: ...

A service plays the other side: people who write and read, and failures of every kind. Needs pytest and
anyio's plugin.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import pytest

from everturn.domain.delivery import Chat, NewPart, OutgoingPart, Update
from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.domain.platform import Deliver, Platform
from everturn.testing.waiting import within

RETRY_AFTER_S = 7
_log = logging.getLogger("everturn.testing")


class Service(Protocol):
    """The stand-in of a platform's service."""

    def say(self, text: str) -> None:
        """Let a person write this in the one chat; it is delivered until it is acknowledged."""
        ...

    def read(self) -> Sequence[str]:
        """What people have read in that chat, in order."""
        ...

    def be_busy(self) -> None:
        """Refuse the next send for now and ask to wait ``RETRY_AFTER_S``."""
        ...

    def refuse(self) -> None:
        """Refuse the next send for good."""
        ...

    def break_off(self) -> None:
        """Take the next send, and close the connection without an answer."""
        ...


class Receiver:
    """Collects updates; ``failures``: what storing the next ones raises."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.failures: list[Exception] = []
        self._changed = anyio.Event()

    async def deliver(self, update: Update) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.updates.append(update)
        self._changed.set()

    async def has(self, count: int) -> list[Update]:
        with within(f"{count} updates are delivered"):
            while len(self.updates) < count:
                self._changed = anyio.Event()
                await self._changed.wait()
        return self.updates


class PlatformConformance:
    @asynccontextmanager
    async def receiving(self, platform: Platform, service: Service, deliver: Deliver) -> AsyncIterator[None]:
        """Let the platform receive. One whose messages come in otherwise overrides this."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._receive, platform, deliver)
            yield
            group.cancel_scope.cancel()

    async def _receive(self, platform: Platform, deliver: Deliver) -> None:
        """Receive as an account does: again after each failure."""
        while True:
            try:
                await platform.receive(deliver)
            except Exception as error:  # the platform's own code
                _log.info("receiving: %r", error)
            await anyio.sleep(0.01)

    async def chat_of(self, platform: Platform, service: Service) -> Chat:
        """The chat that a person has written in."""
        receiver = Receiver()
        async with self.receiving(platform, service, receiver.deliver):
            service.say("I am here")
            (update,) = await receiver.has(1)
        return Chat("cht_x", "ada", update.place, "default", "", None, 0)

    async def test_updates_come_in_order_with_ids_of_their_own(
        self, platform: Platform, service: Service
    ) -> None:
        receiver = Receiver()
        async with self.receiving(platform, service, receiver.deliver):
            for number in range(5):
                service.say(f"message {number}")
            found = await receiver.has(5)
        assert [update.text for update in found] == [f"message {number}" for number in range(5)]
        assert len({update.id for update in found}) == 5
        assert len({update.place for update in found}) == 1
        assert {update.place.platform for update in found} == {platform.name}
        assert all(update.sender for update in found)

    async def test_an_update_that_could_not_be_stored_is_delivered_again(
        self, platform: Platform, service: Service
    ) -> None:
        if not platform.promises.redelivers:
            pytest.skip("this platform does not promise it")
        receiver = Receiver()
        receiver.failures = [OSError("the disk is full")]
        async with self.receiving(platform, service, receiver.deliver):
            service.say("one")
            service.say("two")
            found = await receiver.has(2)
        assert [update.text for update in found] == ["one", "two"]

    async def test_a_part_arrives_and_has_a_name(self, platform: Platform, service: Service) -> None:
        chat = await self.chat_of(platform, service)
        name = await platform.send(part_of(chat, platform.render("hello")[0]))
        assert name
        assert len(service.read()) == 1
        assert "hello" in service.read()[0]

    async def test_a_platform_that_is_busy_has_not_taken_the_part_and_says_how_long(
        self, platform: Platform, service: Service
    ) -> None:
        part = part_of(await self.chat_of(platform, service), platform.render("hello")[0])
        service.be_busy()
        with pytest.raises(PlatformBusy) as busy:
            await platform.send(part)
        assert busy.value.after_s == RETRY_AFTER_S
        assert service.read() == []
        await platform.send(part)
        assert len(service.read()) == 1

    async def test_a_part_that_is_never_taken_is_refused(self, platform: Platform, service: Service) -> None:
        part = part_of(await self.chat_of(platform, service), platform.render("hello")[0])
        service.refuse()
        with pytest.raises(PlatformRefused) as refused:
            await platform.send(part)
        assert refused.value.message
        assert service.read() == []

    async def test_a_send_that_breaks_off_is_neither_busy_nor_refused(
        self, platform: Platform, service: Service
    ) -> None:
        part = part_of(await self.chat_of(platform, service), platform.render("hello")[0])
        service.break_off()
        with pytest.raises(Exception) as broken:  # noqa: PT011 - any other error means: unknown
            await platform.send(part)
        assert not isinstance(broken.value, (PlatformBusy, PlatformRefused))
        await platform.send(part)
        assert len(service.read()) == (1 if platform.promises.deduplicates else 2)

    async def test_a_long_answer_is_rendered_into_parts_that_the_service_takes(
        self, platform: Platform, service: Service
    ) -> None:
        chat = await self.chat_of(platform, service)
        words = [f"word{number}" for number in range(4_000)]
        parts = platform.render(" ".join(words))
        for number, part in enumerate(parts):
            await platform.send(part_of(chat, part, number))
        assert " ".join(service.read()).split() == words

    async def test_nothing_to_say_is_no_part(self, platform: Platform) -> None:
        assert list(platform.render("")) == []


def part_of(chat: Chat, body: NewPart, number: int = 0) -> OutgoingPart:
    return OutgoingPart(f"prt_{number:026d}", chat, body, number, 1, False, 1 << 60)
