"""The platform in memory keeps the promises of every platform."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from everturn.domain.delivery import ChatKind, ChatPlace, Update, UpdateKind
from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.testing.platform import PLAIN, RICH, FakePlatform
from everturn.testing.platform_conformance import RETRY_AFTER_S, RichPlatformConformance, RichService

pytestmark = pytest.mark.anyio


class People:
    """Those who write to and read from the platform in memory."""

    def __init__(self, platform: FakePlatform) -> None:
        self._platform = platform
        self._said = 0

    def say(self, text: str) -> None:
        self._said += 1
        self._platform.say(f"u{self._said}", text)

    def read(self) -> Sequence[str]:
        return self._platform.texts()

    def be_busy(self) -> None:
        self._platform.failures.append(PlatformBusy("Too many requests.", after_s=RETRY_AFTER_S))

    def refuse(self) -> None:
        self._platform.failures.append(PlatformRefused("The chat was deleted."))

    def break_off(self) -> None:
        self._platform.late_failures.append(ConnectionResetError("the connection broke"))

    def revoke(self) -> None:
        self._platform.is_token_valid = False

    def people_edit(self, text: str) -> None:
        place = ChatPlace(self._platform.account, self._platform.name, ChatKind.DIRECT, "42")
        self._platform.deliver_later(Update("e1", place, "ada", text, kind=UpdateKind.EDIT))

    def people_press(self, label: str) -> None:
        buttons = self._platform.arrived[-1].body.buttons
        (data,) = [button.data for button in buttons if button.label == label]
        self._platform.press("p1", data)

    def labels(self) -> Sequence[str]:
        return [button.label for button in self._platform.arrived[-1].body.buttons]

    def files(self) -> Sequence[tuple[str, bytes]]:
        return self._platform.file_bytes

    def lose_messages(self) -> None:
        self._platform.deleted.update(f"msg-{at}" for at in range(len(self._platform.arrived)))


@pytest.mark.parametrize("deduplicates", [False, True])
class TestFakePlatform(RichPlatformConformance):
    @pytest.fixture
    def platform(self, deduplicates: bool) -> FakePlatform:
        return FakePlatform(deduplicates=deduplicates, features=RICH if deduplicates else PLAIN)

    @pytest.fixture
    def service(self, platform: FakePlatform) -> RichService:
        return People(platform)
