"""The platform for Telegram: its real client against a stand-in of the Bot API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import (
    Chat,
    ChatKind,
    ChatPlace,
    NewPart,
    OutgoingFile,
    RemoteFile,
    Update,
    UpdateKind,
)
from everturn.domain.errors import Denied, Invalid, PlatformBusy, PlatformRefused
from everturn.domain.platform import SendLimits
from everturn.domain.redaction import redact
from everturn.testing.platform_conformance import Receiver, RichPlatformConformance, part_of
from everturn.testing.ports import free_port
from tests.telegram_api import ADA, BOT_ID, BOT_NAME, GROUP, PRIVATE, TOKEN, Failure, TelegramService
from tests.waiting import until

if TYPE_CHECKING:  # the client takes seconds to load: only where these tests run
    from everturn.gateway.telegram import TelegramPlatform

pytestmark = pytest.mark.anyio
PROOF_HEADER = "x-telegram-bot-api-secret-token"
CHAT = Chat("cht_x", "ada", ChatPlace("family", "telegram", ChatKind.DIRECT, "7"), "default", "", None, 0)


def made(url: str, token: str = TOKEN, *, poll_s: int = 20, webhook_url: str = "") -> TelegramPlatform:
    from everturn.gateway.telegram import TelegramPlatform, TelegramSettings

    settings = TelegramSettings(api_url=url, webhook_url=webhook_url)
    platform = TelegramPlatform("family", token, settings, SystemClock())
    platform.poll_s, platform.album_wait_s = poll_s, 0.02
    return platform


@pytest.fixture
async def service(anyio_backend: str) -> AsyncIterator[TelegramService]:
    service = TelegramService()
    async with service.serve():
        yield service


@pytest.fixture
async def platform(service: TelegramService) -> AsyncIterator[TelegramPlatform]:
    platform = made(service.url)
    yield platform
    await platform.close()


class TestTelegram(RichPlatformConformance):
    """What every platform does."""


async def received(platform: TelegramPlatform, count: int, *failures: Exception) -> list[Update]:
    """The first updates, received as an account does: again after each failure."""
    receiver = Receiver()
    receiver.failures = list(failures)
    async with TestTelegram().receiving(platform, TelegramService(), receiver.deliver):
        return list(await receiver.has(count))


# --- what arrives ----------------------------------------------------------------------------------


async def test_f01_updates_are_acknowledged_when_they_are_stored(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    stored = anyio.Event()
    seen: list[str] = []

    async def deliver(update: Update) -> None:
        seen.append(update.text)
        await stored.wait()

    service.say("one")
    async with anyio.create_task_group() as group:
        group.start_soon(platform.receive, deliver)
        await until("it is delivered", lambda: seen)
        assert service.acknowledged == []
        stored.set()
        await until("it is acknowledged", lambda: service.acknowledged)
        group.cancel_scope.cancel()
    assert seen == ["one"]


async def test_f01_each_update_has_one_id_however_often_and_in_which_order_it_comes(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    service.repeats, service.shuffles = 1, True
    service.poll_failures = [Failure.DROP, Failure.ERROR, Failure.BUSY]
    for number in range(5):
        service.say(str(number))
    found = await received(platform, 10)
    assert [update.text for update in found] == [*"01234"] * 2
    assert len({update.id for update in found}) == 5
    assert [update.number for update in found] == [1, 2, 3, 4, 5] * 2


async def test_after_a_quiet_week_updates_with_lower_numbers_are_seen(service: TelegramService) -> None:
    platform, receiver = made(service.url, poll_s=0), Receiver()
    async with TestTelegram().receiving(platform, service, receiver.deliver):
        service.say("one")
        await receiver.has(1)
        polls = service.calls.count("getUpdates")
        await until("it has polled again", lambda: service.calls.count("getUpdates") > polls + 2)
        service.last_update = 5
        service.say("two")
        found = await receiver.has(2)
    assert [update.text for update in found] == ["one", "two"]
    await platform.close()


async def test_a_message_tells_its_place_and_its_sender(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    service.say("hello")
    service.say("in a topic", GROUP, message_thread_id=9, is_topic_message=True)
    service.say("in a chain of replies", GROUP, message_thread_id=11)
    private, topic, chain = await received(platform, 3)
    assert private.place == CHAT.place
    assert (private.sender, private.sender_name, private.chat_title) == ("7", "Ada Lovelace", "Ada Lovelace")
    assert private.sent_at == 1_800_000_000_000
    assert private.is_addressed
    assert (topic.place.kind, topic.place.chat, topic.place.thread) == (ChatKind.GROUP, "-1001", "9")
    assert (topic.chat_title, topic.is_addressed) == ("Engines", False)
    assert chain.place.thread == ""


@pytest.mark.parametrize(
    ("origin", "writer"),
    [
        ({"type": "user", "sender_user": {"id": 66, "first_name": "Eve"}}, "Eve"),
        ({"type": "user", "sender_user": {"id": 7, "first_name": "Ada"}}, ""),
        ({"type": "hidden_user", "sender_user_name": "Eve"}, "Eve"),
        ({"type": "channel", "chat": {"id": -5, "type": "channel", "title": "News"}}, "News"),
        ({"type": "of another kind"}, "another person"),
    ],
)
async def test_f05_a_forwarded_message_tells_who_wrote_it(
    platform: TelegramPlatform, service: TelegramService, origin: dict[str, Any], writer: str
) -> None:
    service.say("pay at once", forward_origin=origin)
    (update,) = await received(platform, 1)
    assert (update.text, update.sender, update.forwarded_from) == ("pay at once", "7", writer)


@pytest.mark.parametrize(
    ("content", "text", "is_addressed"),
    [
        ({"text": "hello all"}, "hello all", False),
        ({"text": "😀 @Helper_Bot hi", "entities": [("mention", 3, 11)]}, "😀 hi", True),
        ({"text": "@other_bot hi", "entities": [("mention", 0, 10)]}, "@other_bot hi", False),
        ({"text": "/new", "entities": [("bot_command", 0, 4)]}, "/new", True),
        ({"text": f"/new@{BOT_NAME} x", "entities": [("bot_command", 0, 15)]}, "/new x", True),
        ({"text": "/new@other_bot", "entities": [("bot_command", 0, 14)]}, "/new@other_bot", False),
        ({"text": "yes", "reply_to_message": {"from": {"id": BOT_ID, "is_bot": True}}}, "yes", True),
        (
            {
                "text": "yes",
                "reply_to_message": {"from": {"id": BOT_ID}, "forum_topic_created": {"name": "Plans"}},
            },
            "yes",
            False,
        ),
        ({"caption": f"@{BOT_NAME}", "caption_entities": [("mention", 0, 11)], "voice": "v"}, "", True),
    ],
)
async def test_f05_in_a_group_the_bot_is_meant_if_it_is_named(
    service: TelegramService,
    platform: TelegramPlatform,
    content: dict[str, Any],
    text: str,
    is_addressed: bool,
) -> None:
    for name in ("entities", "caption_entities"):
        if name in content:
            shapes = content[name]
            content = {
                **content,
                name: [{"type": kind, "offset": at, "length": size} for kind, at, size in shapes],
            }
    if "voice" in content:
        content = {**content, "voice": {"file_id": "v"}}
    service.post(GROUP, **content)
    (update,) = await received(platform, 1)
    assert (update.text, update.is_addressed) == (text, is_addressed)


async def test_files_of_every_kind_arrive_with_names(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    service.post(photo=[{"file_id": "s", "file_size": 10}, {"file_id": "l", "file_size": 90}], caption="see")
    service.post(voice={"file_id": "v", "mime_type": "audio/ogg", "file_size": 5})
    service.post(document={"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf"})
    service.post(animation={"file_id": "a"}, document={"file_id": "a"})
    service.post(sticker={"file_id": "s", "emoji": "👍"})
    service.post(location={"latitude": 51.5, "longitude": -0.1})
    service.post(contact={"phone_number": "+43 1 23", "first_name": "Bob", "last_name": "Boole"})
    photo, voice, document, animation, sticker, location, contact = await received(platform, 7)
    assert (photo.text, photo.files) == ("see", (RemoteFile("l", "photo-1.jpg", "image/jpeg", 90),))
    assert voice.files == (RemoteFile("v", "voice-2.ogg", "audio/ogg", 5),)
    assert document.files == (RemoteFile("d", "a.pdf", "application/pdf"),)
    assert [file.name for file in animation.files] == ["animation-4.mp4"]
    assert (sticker.text, location.text) == ("👍", "My location: 51.5, -0.1")
    assert contact.text == "Contact: Bob Boole, +43 1 23"


async def test_what_cannot_be_read_is_delivered_as_such_and_a_moving_location_once(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    service.post(poll={"id": "1", "question": "When?", "options": []})
    service.post(location={"latitude": 51.5, "longitude": -0.1, "live_period": 600})
    service.people_edit("")  # where the person is now; it comes every few seconds
    service.say("after it")
    poll, location, after = await received(platform, 3)
    assert (poll.kind, poll.text, poll.is_addressed) == (UpdateKind.UNREADABLE, "", True)
    assert (location.text, after.text) == ("My location: 51.5, -0.1", "after it")


async def test_the_pictures_of_an_album_are_one_message(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    service.post(photo=[{"file_id": "a"}], media_group_id="g", caption="our trip")
    service.say("meanwhile", GROUP)
    service.post(photo=[{"file_id": "b"}], media_group_id="g")
    meanwhile, album = await received(platform, 2)
    assert (meanwhile.text, album.text) == ("meanwhile", "our trip")
    assert [file.ref for file in album.files] == ["a", "b"]


async def test_an_update_of_an_unknown_kind_is_acknowledged_and_counted(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    service.push("message_reaction", {"chat": PRIVATE})
    service.push("message", {"message_id": "not a number"})
    service.post(new_chat_members=[{"id": 9}])
    service.post(text="from a bot", **{"from": {"id": 9, "is_bot": True}})
    service.say("after them")
    receiver = Receiver()
    async with TestTelegram().receiving(platform, service, receiver.deliver):
        (update,) = await receiver.has(1)
        await until("all are acknowledged", lambda: len(service.acknowledged) == 5)
    assert (update.text, platform.unknown_updates) == ("after them", 4)


async def test_a_press_is_answered_once_it_is_stored(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    press = {"id": "q9", "from": ADA, "message": {"message_id": 1, "date": 0, "chat": GROUP}, "data": "ok"}
    service.push("callback_query", press)
    receiver = Receiver()
    receiver.failures = [OSError("the disk is full")]
    async with TestTelegram().receiving(platform, service, receiver.deliver):
        (update,) = await receiver.has(1)
        await until("the press is answered", lambda: service.answered)
    assert (update.kind, update.press, update.sender) == (UpdateKind.PRESS, "ok", "7")
    assert service.answered == ["q9"]


async def test_two_programs_with_one_token_are_told(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    async def other() -> None:
        await until("it polls", lambda: "getUpdates" in service.calls)
        await service._getUpdates({})

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        with pytest.raises(PlatformBusy, match="Another program"):
            await platform.receive(Receiver().deliver)


# --- by webhook ------------------------------------------------------------------------------------


async def test_f11_a_webhook_is_set_and_its_posts_are_read_on_any_worker(service: TelegramService) -> None:
    address = "https://agent.example/hooks/family"
    serving, other = made(service.url, webhook_url=address), made(service.url, webhook_url=address)
    service.push("callback_query", {"id": "q1", "from": ADA, "message": None, "data": "x"})
    async with anyio.create_task_group() as group:
        group.start_soon(serving.receive, Receiver().deliver)
        await until("the webhook is set", lambda: service.webhook)
        headers = {PROOF_HEADER: service.webhook["secret_token"]}
        service.say(f"@{BOT_NAME} hello", GROUP, entities=[{"type": "mention", "offset": 0, "length": 11}])
        press, message = (msgspec.json.encode(update) for update in service.updates)
        update = other.read_update(headers, message)
        assert update is not None
        assert (update.text, update.is_addressed) == ("hello", True)
        assert update == serving.read_update(headers, message)
        assert serving.read_update(headers, press) is None
        await until("the press is answered", lambda: service.answered)
        group.cancel_scope.cancel()
    assert service.webhook["url"] == address
    assert service.webhook["max_connections"] == "1"
    for wrong in ({}, {PROOF_HEADER: ""}, {PROOF_HEADER: headers[PROOF_HEADER].replace("help", "yelp")}):
        with pytest.raises(Denied):
            other.read_update(wrong, message)
    for body in (b"", b"[]", b"{}", b'{"update_id": "x"}'):
        with pytest.raises(Invalid):
            other.read_update(headers, body)
    await serving.close()
    await other.close()


# --- what is sent ----------------------------------------------------------------------------------


async def test_an_answer_goes_to_its_topic(platform: TelegramPlatform, service: TelegramService) -> None:
    topic = replace(CHAT, place=ChatPlace("family", "telegram", ChatKind.GROUP, "-1001", "9"))
    await platform.send(part_of(topic, platform.render("**hi** <you> & me")[0]))
    (message,) = service.sent.values()
    assert (message["chat"]["id"], message["message_thread_id"]) == (-1001, 9)
    assert message["shown"] == "hi <you> & me"


async def test_a_repeat_says_that_it_may_be_one(platform: TelegramPlatform, service: TelegramService) -> None:
    for body in (platform.render("x" * 3_900)[0], NewPart("1 < 2")):
        await platform.send(replace(part_of(CHAT, body), is_repeat=True))
    assert [text.split("\n")[0] for text in service.read()] == ["This may be a repeat:"] * 2
    assert service.read()[1].endswith("\n1 < 2")


async def test_right_to_left_text_and_emoji_survive_a_split(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    text = "שלום 👩‍👩‍👧‍👦 مرحبا 🇩🇪 " * 700
    for number, part in enumerate(platform.render(text)):
        await platform.send(part_of(CHAT, part, number))
    assert len(service.read()) > 3
    assert " ".join(service.read()).split() == text.split()


async def test_text_that_telegram_cannot_parse_is_sent_plain(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    await platform.send(part_of(CHAT, NewPart("<b>1 &lt; 2", "HTML")))
    assert service.read() == ["1 < 2"]


@pytest.mark.parametrize("failure", [Failure.ERROR_AFTER, Failure.BREAK_OFF, Failure.ERROR, Failure.DROP])
async def test_f03_a_send_without_a_clear_answer_is_unknown(
    platform: TelegramPlatform, service: TelegramService, failure: Failure
) -> None:
    service.failures = [failure]
    with pytest.raises(ConnectionError) as unknown:
        await platform.send(part_of(CHAT, NewPart("hello")))
    assert TOKEN not in str(unknown.value)


async def test_a_server_that_is_not_there_has_not_taken_it() -> None:
    platform = made(f"http://127.0.0.1:{free_port()}")
    hello = NewPart("hello")
    for call in (platform.send(part_of(CHAT, hello)), platform.edit(CHAT, "1", hello), platform.identify()):
        with pytest.raises(PlatformBusy):
            await call
    await platform.close()


async def test_a_revoked_token_keeps_what_waits(platform: TelegramPlatform, service: TelegramService) -> None:
    service.revoke()
    with pytest.raises(PlatformBusy, match="token") as busy:
        await platform.send(part_of(CHAT, NewPart("hello")))
    assert busy.value.after_s
    with pytest.raises(PlatformRefused, match="token") as refused:
        await platform.receive(Receiver().deliver)
    # Where errors are shown, whatever follows "token:" is hidden: the reason must not stand there.
    assert redact(refused.value.message) == "Telegram does not accept the bot's token. It says: Unauthorized."


@pytest.mark.parametrize(
    "reason", ["Bad Request: chat not found", "Forbidden: bot was kicked from the supergroup chat"]
)
async def test_a_chat_that_is_gone_is_refused_with_the_reason(
    platform: TelegramPlatform, service: TelegramService, reason: str
) -> None:
    service.gone[7] = reason
    with pytest.raises(PlatformRefused, match=reason.split(": ")[1]):
        await platform.send(part_of(CHAT, NewPart("hello")))


async def test_a_group_that_became_a_supergroup_is_followed(
    platform: TelegramPlatform, service: TelegramService
) -> None:
    service.moved[-5] = -1001
    group = replace(CHAT, place=ChatPlace("family", "telegram", ChatKind.GROUP, "-5"))
    name = await platform.send(part_of(group, NewPart("one")))
    await platform.edit(group, name, NewPart("two"))
    assert service.read(GROUP) == ["two"]
    assert service.calls == ["sendMessage", "sendMessage", "editMessageText"]


def test_it_keeps_to_the_limits_of_the_bot_api() -> None:
    from everturn.gateway.telegram import TelegramPlatform

    limits = TelegramPlatform.limits
    assert limits.per_s_max <= 30
    assert limits.spacing_s(ChatKind.DIRECT) >= 1
    assert 60 / limits.spacing_s(ChatKind.GROUP) <= 20
    assert SendLimits(chat_spacing_s=2).spacing_s(ChatKind.GROUP) == 2


def test_a_text_that_is_no_token_is_invalid() -> None:
    for text in ("", "hello", "123:", "1 2:abc"):
        with pytest.raises(Invalid):
            made("http://127.0.0.1:1", text)


# --- files -----------------------------------------------------------------------------------------


def file_part(path: Path, name: str, media_type: str, text: str = "") -> Any:
    return replace(part_of(CHAT, NewPart(text, file_id="f")), file=OutgoingFile(path, name, media_type))


async def test_a_picture_is_shown_as_one_unless_telegram_cannot(
    platform: TelegramPlatform, service: TelegramService, tmp_path: Path
) -> None:
    path = tmp_path / "plot"
    path.write_bytes(b"picture")
    await platform.send(file_part(path, "plot.png", "image/png", "the plot"))
    service.refuses_photos = True
    await platform.send(file_part(path, "wide.png", "image/png"))
    assert [message["kind"] for message in service.sent.values()] == ["photo", "document"]
    assert service.read() == ["the plot", ""]
    assert service.files() == [("plot.png", b"picture"), ("wide.png", b"picture")]


async def test_a_file_that_telegram_does_not_take_is_refused_before_it_is_sent(
    platform: TelegramPlatform, service: TelegramService, tmp_path: Path
) -> None:
    path = tmp_path / "film"
    with path.open("wb") as file:
        file.truncate(50_000_001)
    with pytest.raises(PlatformRefused, match=r"film\.mp4"):
        await platform.send(file_part(path, "film.mp4", "video/mp4"))
    path.write_bytes(b"small")
    with pytest.raises(PlatformRefused, match="longer"):
        await platform.send(file_part(path, "film.mp4", "video/mp4", "x" * 1_025))
    assert service.calls == []


async def test_a_file_is_fetched_within_its_limit(
    platform: TelegramPlatform, service: TelegramService, tmp_path: Path
) -> None:
    service.remote_files["v"] = b"x" * 200_000
    target = tmp_path / "fetched"
    await platform.fetch(RemoteFile("v", "voice.ogg"), target, bytes_max=200_000)
    assert target.read_bytes() == service.remote_files["v"]
    for file in (RemoteFile("v", "voice.ogg", size=50_000_000), RemoteFile("v", "voice.ogg")):
        with pytest.raises(PlatformRefused, match=r"voice\.ogg is larger"):
            await platform.fetch(file, target, bytes_max=199_999)
    with pytest.raises(PlatformRefused, match="too big"):
        await platform.fetch(RemoteFile("film", "film.mp4"), target, bytes_max=1_000)
