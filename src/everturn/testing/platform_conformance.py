# ruff: noqa: S101 - a test suite that is shipped
"""The tests that every ``Platform`` must pass, against a stand-in of its service.

    class TestMyPlatform(PlatformConformance):
        @pytest.fixture
        async def service(self) -> AsyncIterator[Service]: ...

        @pytest.fixture
        def platform(self, service: Service) -> Platform: ...

A platform with buttons, edits or files derives from ``RichPlatformConformance`` and has a ``RichService``.
A service plays the other side: people who write and read, and failures of every kind. Needs pytest and
anyio's plugin.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
import pytest
from msgspec.structs import replace

from everturn.domain.delivery import (
    BUTTON_BYTES_MAX,
    INBOX_KEEP_S,
    Button,
    Chat,
    NewPart,
    OutgoingFile,
    OutgoingPart,
    Update,
    UpdateKind,
)
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


class RichService(Service, Protocol):
    """The stand-in of a service that shows more than text. Methods are called only where the platform's
    ``features`` say so; ``revoke`` and the ``people_`` ones always."""

    def revoke(self) -> None:
        """Make the account's token invalid."""
        ...

    def people_edit(self, text: str) -> None:
        """Let a person change their last message into this."""
        ...

    def people_press(self, label: str) -> None:
        """Let a person press the button with this label below our last message."""
        ...

    def labels(self) -> Sequence[str]:
        """The buttons below our last message."""
        ...

    def files(self) -> Sequence[tuple[str, bytes]]:
        """Names and contents of the files that people have got."""
        ...

    def lose_messages(self) -> None:
        """Delete what we have sent, so that it cannot be edited."""
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

    async def test_updates_are_not_kept_for_longer_than_repeats_are_recognised(
        self, platform: Platform
    ) -> None:
        kept_s = platform.promises.keeps_updates_s
        assert kept_s is None or kept_s <= INBOX_KEEP_S / 2

    async def test_the_account_knows_who_it_is(self, platform: Platform) -> None:
        identity = await platform.identify()
        assert identity.id
        assert identity.name

    async def test_nothing_to_say_is_no_part(self, platform: Platform) -> None:
        assert list(platform.render("")) == []


class RichPlatformConformance(PlatformConformance):
    """For platforms that show more than text. Its ``service`` is a RichService."""

    async def test_a_wrong_token_is_refused_with_a_reason(
        self, platform: Platform, service: RichService
    ) -> None:
        service.revoke()
        with pytest.raises(PlatformRefused) as refused:
            await platform.identify()
        assert refused.value.message

    async def test_a_changed_message_is_delivered_as_an_edit(
        self, platform: Platform, service: RichService
    ) -> None:
        receiver = Receiver()
        async with self.receiving(platform, service, receiver.deliver):
            service.say("good mornig")
            await receiver.has(1)
            service.people_edit("good morning")
            said, changed = await receiver.has(2)
        assert (said.kind, changed.kind) == (UpdateKind.MESSAGE, UpdateKind.EDIT)
        assert changed.text == "good morning"
        assert changed.id != said.id
        assert changed.place == said.place

    async def test_an_edit_replaces_the_text_and_can_be_repeated(
        self, platform: Platform, service: RichService
    ) -> None:
        _need(platform.features.edits)
        chat = await self.chat_of(platform, service)
        name = await platform.send(part_of(chat, platform.render("Thinking")[0]))
        body = platform.render("The answer")[0]
        await platform.edit(chat, name, body)
        await platform.edit(chat, name, body)
        assert len(service.read()) == 1
        assert "The answer" in service.read()[0]

    async def test_an_edit_of_a_message_that_is_gone_is_refused(
        self, platform: Platform, service: RichService
    ) -> None:
        _need(platform.features.edits)
        chat = await self.chat_of(platform, service)
        name = await platform.send(part_of(chat, platform.render("Thinking")[0]))
        service.lose_messages()
        with pytest.raises(PlatformRefused) as refused:
            await platform.edit(chat, name, platform.render("The answer")[0])
        assert refused.value.message

    async def test_a_pressed_button_is_delivered_with_its_data(
        self, platform: Platform, service: RichService
    ) -> None:
        _need(platform.features.buttons)
        chat = await self.chat_of(platform, service)
        data = "x" * BUTTON_BYTES_MAX
        buttons = (
            Button("Allow once", data),
            Button("Deny", "deny:1"),
            Button("Open", url="https://example.com/s/1"),
        )
        await platform.send(part_of(chat, replace(platform.render("Allow it?")[0], buttons=buttons)))
        assert list(service.labels()) == ["Allow once", "Deny", "Open"]
        receiver = Receiver()
        async with self.receiving(platform, service, receiver.deliver):
            service.people_press("Allow once")
            (press,) = await receiver.has(1)
        assert (press.kind, press.press, press.place) == (UpdateKind.PRESS, data, chat.place)
        assert press.sender

    async def test_an_edit_without_buttons_takes_them_away(
        self, platform: Platform, service: RichService
    ) -> None:
        _need(platform.features.buttons and platform.features.edits)
        chat = await self.chat_of(platform, service)
        question = replace(platform.render("Allow it?")[0], buttons=(Button("Deny", "deny:1"),))
        name = await platform.send(part_of(chat, question))
        await platform.edit(chat, name, platform.render("Denied")[0])
        assert list(service.labels()) == []
        assert "Denied" in service.read()[-1]

    async def test_a_file_arrives_with_its_name_and_bytes(
        self, platform: Platform, service: RichService, tmp_path: Path
    ) -> None:
        _need(platform.features.files)
        chat = await self.chat_of(platform, service)
        path = tmp_path / "stored"
        path.write_bytes(b"a,b\n1,2\n")
        part = replace(
            part_of(chat, NewPart(file_id="fil_x")), file=OutgoingFile(path, "table.csv", "text/csv")
        )
        assert await platform.send(part)
        assert list(service.files()) == [("table.csv", b"a,b\n1,2\n")]

    async def test_typing_is_shown_without_a_message(self, platform: Platform, service: RichService) -> None:
        _need(platform.features.typing)
        await platform.show_typing(await self.chat_of(platform, service))
        assert service.read() == []


def _need(has_feature: bool) -> None:
    if not has_feature:
        pytest.skip("this platform does not have it")


def part_of(chat: Chat, body: NewPart, number: int = 0) -> OutgoingPart:
    return OutgoingPart(f"prt_{number:026d}", chat, body, number, 1, False, 1 << 60)
