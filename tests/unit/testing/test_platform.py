"""The platform in memory keeps the promises of every platform."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.testing.platform import FakePlatform
from everturn.testing.platform_conformance import RETRY_AFTER_S, PlatformConformance, Service

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


@pytest.mark.parametrize("deduplicates", [False, True])
class TestFakePlatform(PlatformConformance):
    @pytest.fixture
    def platform(self, deduplicates: bool) -> FakePlatform:
        return FakePlatform(deduplicates=deduplicates)

    @pytest.fixture
    def service(self, platform: FakePlatform) -> Service:
        return People(platform)
