"""The platform for programs, against a program that posts and takes signed messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from everturn.delivery.signatures import ID, SIGNATURE, TIME, TOLERANCE_S, read_secret, sign
from everturn.domain.clock import SystemClock
from everturn.domain.delivery import Chat, ChatKind, NewPart
from everturn.domain.errors import Denied, Invalid, PlatformBusy, PlatformRefused
from everturn.domain.platform import Deliver, Platform
from everturn.gateway.webhook import TEXT_CHARS_MAX, WebhookPlatform, WebhookSettings
from everturn.testing.platform_conformance import PlatformConformance, Service, part_of
from everturn.testing.ports import free_port
from everturn.testing.webhook_service import WebhookService

pytestmark = pytest.mark.anyio
KEY = bytes(range(32))
OTHER_KEY = bytes(reversed(range(32)))


@pytest.fixture
def service() -> Iterator[WebhookService]:
    service = WebhookService(KEY, SystemClock())
    with service.serve():
        yield service


def platform_at(port: int, *keys: bytes) -> WebhookPlatform:
    address = f"127.0.0.1:{port}"
    settings = WebhookSettings(url=f"http://{address}/in", private_addresses=(address,))
    return WebhookPlatform("ci", settings, keys or (KEY,), SystemClock())


@pytest.fixture
def platform(service: WebhookService) -> WebhookPlatform:
    return platform_at(service.port)


class TestWebhook(PlatformConformance):
    @asynccontextmanager
    async def receiving(self, platform: Platform, service: Service, deliver: Deliver) -> AsyncIterator[None]:
        """Messages come in through the server's address: the program posts each until it is taken."""
        assert isinstance(platform, WebhookPlatform)
        assert isinstance(service, WebhookService)
        async with anyio.create_task_group() as group:
            group.start_soon(_post_all, platform, service, deliver)
            yield
            group.cancel_scope.cancel()


async def _post_all(platform: WebhookPlatform, service: WebhookService, deliver: Deliver) -> None:
    while True:
        await anyio.sleep(0.001)
        if service.waiting:
            try:
                await deliver(platform.read_update(*service.waiting[0]))
            except OSError:
                continue  # it was not acknowledged
            service.waiting.pop(0)


def signed(body: bytes, *, key: bytes = KEY, at_s: int | None = None) -> dict[str, str]:
    return sign(key, "msg_1", now_s() if at_s is None else at_s, body)


BODY = b'{"text": "deployed", "chat": "deploys", "thread": "7", "sender": "ci"}'


def test_f11_a_signed_message_is_read(platform: WebhookPlatform) -> None:
    update = platform.read_update(signed(BODY), BODY)
    assert (update.id, update.text, update.sender) == ("msg_1", "deployed", "ci")
    place = update.place
    assert (place.account, place.kind, place.chat, place.thread) == ("ci", ChatKind.HOOK, "deploys", "7")


def test_f11_each_of_several_secrets_is_accepted_and_the_first_one_signs(service: WebhookService) -> None:
    platform = platform_at(service.port, OTHER_KEY, KEY)
    assert platform.read_update(signed(BODY), BODY).id == "msg_1"
    both = signed(BODY, key=b"a key that nobody knows")
    both[SIGNATURE] += " " + signed(BODY)[SIGNATURE]
    assert platform.read_update(both, BODY).id == "msg_1"


def now_s() -> int:
    return SystemClock().now_ms() // 1000


@pytest.mark.parametrize(
    "wrong_headers",
    [
        dict,
        lambda: signed(BODY, key=OTHER_KEY),
        lambda: signed(BODY, at_s=now_s() - 2 * TOLERANCE_S),
        lambda: signed(BODY, at_s=now_s() + 2 * TOLERANCE_S),
        lambda: signed(b'{"text": "another"}'),
        lambda: {**signed(BODY), ID: "msg_2"},
        lambda: {**signed(BODY), ID: ""},
        lambda: {**signed(BODY), TIME: "now"},
        lambda: {**signed(BODY), TIME: "\u0663"},
        lambda: {**signed(BODY), SIGNATURE: ""},
        lambda: {**signed(BODY), SIGNATURE: "v1,\u00fcnsigned"},
        lambda: {**signed(BODY), SIGNATURE: signed(BODY)[SIGNATURE].replace("v1,", "v2,")},
    ],
)
def test_f11_what_is_not_signed_for_this_account_now_is_denied(
    wrong_headers: Callable[[], dict[str, str]],
) -> None:
    with pytest.raises(Denied) as denied:
        platform_at(80).read_update(wrong_headers(), BODY)
    assert denied.value.hint


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"text": 1}',
        b'{"text": "a", "owner": "root"}',
        b'{"text": "\xff"}',
        b'{"text": "a", "chat": ""}',
        b'{"text": "%s"}' % (b"x" * (TEXT_CHARS_MAX + 1)),
    ],
    ids=range(9),
)
def test_f11_a_signed_body_that_is_no_message_is_invalid(body: bytes) -> None:
    with pytest.raises(Invalid):
        platform_at(80).read_update(signed(body), body)


@pytest.fixture
def chat(platform: WebhookPlatform) -> Chat:
    place = platform.read_update(signed(BODY), BODY).place
    return Chat("cht_x", "ada", place, "default", "", None, 0)


async def test_f11_an_answer_is_signed_and_names_its_chat(
    platform: WebhookPlatform, service: WebhookService, chat: Chat
) -> None:
    await platform.send(part_of(chat, NewPart("**done**")))
    assert list(service.answers.values()) == [
        {"type": "message", "chat": "deploys", "thread": "7", "text": "**done**", "part": 0}
    ]


async def test_f11_a_program_that_is_not_there_is_tried_again(chat: Chat) -> None:
    with pytest.raises(PlatformBusy) as busy:
        await platform_at(free_port()).send(part_of(chat, NewPart("hello")))
    assert busy.value.after_s is None


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "2130706433"])
async def test_f11_an_address_that_is_not_public_is_refused_before_anything_is_sent(
    service: WebhookService, chat: Chat, host: str
) -> None:
    settings = WebhookSettings(url=f"http://{host}:{service.port}/in")
    with pytest.raises(PlatformRefused):
        await WebhookPlatform("ci", settings, (KEY,), SystemClock()).send(part_of(chat, NewPart("hello")))
    assert service.attempts == 0


@pytest.mark.parametrize("url", ["", "ftp://example.com/", "/in", "http://me:secret@example.com/", "http://"])
def test_f11_an_address_that_cannot_be_posted_to_is_invalid(url: str) -> None:
    with pytest.raises(Invalid):
        WebhookPlatform("ci", WebhookSettings(url=url), (KEY,), SystemClock())


def test_f11_a_secret_is_long_and_in_base64() -> None:
    assert read_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") == read_secret(
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    )
    for bad in ("", "whsec_", "whsec_short", "whsec_äöü", "whsec_MfKQ9r8G"):
        with pytest.raises(Invalid):
            read_secret(bad)


def test_f11_a_signature_is_the_one_of_the_specification() -> None:
    """The example of the Standard Webhooks libraries."""
    key = read_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers[SIGNATURE] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
