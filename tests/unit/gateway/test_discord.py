"""The platform for Discord: its real client against a stand-in of the API and the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import (
    Button,
    Chat,
    ChatKind,
    ChatPlace,
    NewPart,
    RemoteFile,
    SeenChat,
    UpdateKind,
)
from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.gateway.discord import DiscordPlatform, DiscordSettings
from everturn.testing.platform_conformance import Receiver, RichPlatformConformance, part_of
from everturn.testing.ports import free_port
from tests.discord_api import BOT, PRIVATE, SERVER, TOKEN, DiscordService, Failure
from tests.waiting import until

pytestmark = pytest.mark.anyio
CHAT = Chat("cht_x", "ada", ChatPlace("club", "discord", ChatKind.DIRECT, PRIVATE), "default", "", None, 0)


@pytest.fixture
async def service(anyio_backend: str) -> AsyncIterator[DiscordService]:
    service = DiscordService()
    async with service.serve():
        yield service


@pytest.fixture
async def platform(service: DiscordService) -> AsyncIterator[DiscordPlatform]:
    settings = DiscordSettings(api_url=f"{service.url}/api", gateway_url=service.gateway_url)
    platform = DiscordPlatform("club", TOKEN, settings, SystemClock())
    yield platform
    await platform.close()


class TestDiscord(RichPlatformConformance):
    """What every platform does."""


# --- what arrives ----------------------------------------------------------------------------------


async def test_f01_a_lost_socket_is_resumed_after_the_last_event_that_was_stored(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    receiver = Receiver()
    async with TestDiscord().receiving(platform, service, receiver.deliver):
        service.say("one")
        await receiver.has(1)
        receiver.failures = [OSError("the disk is full")]
        service.say("two")
        await receiver.has(2)
        await service.drop_sockets()
        service.say("three")
        found = await receiver.has(3)
    assert [update.text for update in found] == ["one", "two", "three"]
    assert (service.identified, service.resumed) == (1, [1, 2])


async def test_a_session_that_cannot_be_resumed_is_begun_anew(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    receiver = Receiver()
    async with TestDiscord().receiving(platform, service, receiver.deliver):
        service.say("one")
        await receiver.has(1)
        service.invalidates = True
        await service.drop_sockets()
        await until("a new session begins", lambda: service.identified == 2)
        service.say("two")
        found = await receiver.has(2)
    assert [update.text for update in found] == ["one", "two"]


async def test_f01_a_new_process_reads_what_was_written_while_none_ran(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    receiver = Receiver()
    async with TestDiscord().receiving(platform, service, receiver.deliver):
        service.say("one")
        service.say(f"<@{BOT['id']}> one", SERVER, mentions=[BOT])
        private, shared = await receiver.has(2)
    for number in range(150):
        service.say(str(number))
    service.say(f"<@{BOT['id']}> two", SERVER, mentions=[BOT])
    settings = DiscordSettings(api_url=f"{service.url}/api", gateway_url=service.gateway_url)
    another = DiscordPlatform("club", TOKEN, settings, SystemClock())

    async def seen() -> list[SeenChat]:
        gone = ChatPlace("club", "discord", ChatKind.DIRECT, "404")
        return [SeenChat(gone, 1), *(SeenChat(one.place, one.number or 0) for one in (private, shared))]

    another.use_history(seen)
    receiver = Receiver()
    async with TestDiscord().receiving(another, service, receiver.deliver):
        await receiver.has(151)
        service.say("last")
        found = await receiver.has(152)
    await another.close()
    assert [update.text for update in found] == [*map(str, range(150)), "two", "last"]
    assert found[150].place == shared.place


async def test_a_message_tells_its_place_its_sender_and_whether_the_bot_is_meant(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    mention = f"<@{BOT['id']}>"
    receiver = Receiver()
    async with TestDiscord().receiving(platform, service, receiver.deliver):
        service.say("hello")
        service.say(f"{mention} what is new?", SERVER, mentions=[BOT])
        service.say("yes", SERVER, type=19, referenced_message={"author": BOT})
        service.say("not for you", SERVER)
        private, mentioned, reply, other = await receiver.has(4)
    assert private.place == CHAT.place
    assert (private.sender, private.sender_name, private.is_addressed) == ("7", "Ada Lovelace", True)
    assert (mentioned.place.kind, mentioned.place.chat) == (ChatKind.GROUP, SERVER)
    assert (mentioned.text, mentioned.is_addressed) == ("what is new?", True)
    assert (reply.is_addressed, other.is_addressed) == (True, False)
    assert private.number is not None
    assert other.number is not None
    assert private.number < other.number


async def test_what_no_person_wrote_is_counted_and_a_deletion_is_told(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    receiver = Receiver()
    async with TestDiscord().receiving(platform, service, receiver.deliver):
        service.say("from a bot", author=BOT)
        service.say("somebody joined", type=7)
        service.push("MESSAGE_CREATE", {"id": 5})
        service.push("MESSAGE_DELETE", {"id": "1", "channel_id": PRIVATE})
        service.push("TYPING_START", {"user_id": "7"})
        service.say("oops", id="77")
        service.push("MESSAGE_DELETE", {"id": "77", "channel_id": PRIVATE})
        said, deleted = await receiver.has(2)
    assert (said.text, deleted.kind, deleted.sender) == ("oops", UpdateKind.DELETION, "7")
    assert deleted.place == said.place
    assert platform.unknown_updates == 4


async def test_a_plain_text_names_no_link_as_another(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    await platform.send(part_of(CHAT, NewPart("[Allow](https://x.example)\nhttps://here.example/#/s/ses_1")))
    assert service.read() == ["\\[Allow\\](https://x.example)\nhttps://here.example/#/s/ses_1"]


async def test_a_press_is_answered_once_it_is_stored(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    await platform.send(part_of(CHAT, NewPart("Allow it?", buttons=(Button("Deny", "deny:1"),))))
    receiver = Receiver()
    receiver.failures = [OSError("the disk is full")]
    async with TestDiscord().receiving(platform, service, receiver.deliver):
        service.people_press("Deny")
        (press,) = await receiver.has(1)
        await until("the press is answered", lambda: service.answered)
    assert service.answered == [press.id]


async def test_a_token_that_is_reset_while_it_is_connected_is_told(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    assert await platform.identify()
    service.revoke()
    with pytest.raises(PlatformBusy, match="token") as busy:
        await platform.send(part_of(CHAT, NewPart("hello")))
    assert busy.value.after_s
    with pytest.raises(PlatformRefused, match="token"):
        await platform.receive(Receiver().deliver)


async def test_a_wrong_api_url_is_named_and_not_only_the_token(service: DiscordService) -> None:
    settings = DiscordSettings(api_url=f"{service.url}/elsewhere", gateway_url=service.gateway_url)
    platform = DiscordPlatform("club", TOKEN, settings, SystemClock())
    with pytest.raises(PlatformRefused) as refused:
        await platform.identify()
    await platform.close()
    assert f"{service.url}/elsewhere" in refused.value.hint
    assert "api_url" in refused.value.hint


async def test_missing_libraries_for_voice_are_not_logged(
    platform: DiscordPlatform, service: DiscordService, caplog: pytest.LogCaptureFixture
) -> None:
    async with TestDiscord().receiving(platform, service, Receiver().deliver):
        await until("it is connected", lambda: service.identified)
    assert "voice" not in caplog.text


# --- what is sent ----------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Failure.ERROR_AFTER, Failure.BREAK_OFF, Failure.DROP])
async def test_f03_a_send_without_a_clear_answer_is_unknown_and_its_repeat_is_recognised(
    platform: DiscordPlatform, service: DiscordService, failure: Failure
) -> None:
    service.failures = [failure]
    part = part_of(CHAT, NewPart("hello"))
    with pytest.raises(ConnectionError) as unknown:
        await platform.send(part)
    assert TOKEN not in str(unknown.value)
    await platform.send(part)
    assert service.read() == ["hello"]


async def test_a_server_that_is_not_there_has_not_taken_it() -> None:
    settings = DiscordSettings(api_url=f"http://127.0.0.1:{free_port()}/api")
    platform = DiscordPlatform("club", TOKEN, settings, SystemClock())
    with pytest.raises(PlatformBusy):
        await platform.send(part_of(CHAT, NewPart("hello")))
    with pytest.raises(PlatformBusy):
        await platform.identify()


async def test_many_buttons_stand_in_rows(platform: DiscordPlatform, service: DiscordService) -> None:
    buttons = tuple(Button(f"choice {number}", f"c:{number}") for number in range(7))
    await platform.send(part_of(CHAT, NewPart("Which?", buttons=buttons)))
    (message,) = service.sent.values()
    assert [len(row["components"]) for row in message["components"]] == [5, 2]
    assert len(service.labels()) == 7


async def test_right_to_left_text_and_emoji_survive_a_split(
    platform: DiscordPlatform, service: DiscordService
) -> None:
    text = "שלום 👩‍👩‍👧‍👦 مرحبا 🇩🇪 " * 300
    for number, part in enumerate(platform.render(text)):
        await platform.send(part_of(CHAT, part, number))
    assert len(service.read()) > 3
    assert " ".join(service.read()).split() == text.split()


async def test_a_file_is_fetched_from_discord_within_its_limit(
    platform: DiscordPlatform, service: DiscordService, tmp_path: Path
) -> None:
    service.remote_files["a.txt"] = b"x" * 200_000
    target, file = tmp_path / "fetched", RemoteFile(f"{service.url}/files/a.txt", "a.txt")
    await platform.fetch(file, target, bytes_max=200_000)
    assert target.read_bytes() == service.remote_files["a.txt"]
    for large in (file, replace(file, size=50_000_000)):
        with pytest.raises(PlatformRefused, match=r"a\.txt is larger"):
            await platform.fetch(large, target, bytes_max=199_999)
    for gone in (f"{service.url}/files/b.txt", "http://localhost/a.txt", "https://discord.com.example/a"):
        with pytest.raises(PlatformRefused):
            await platform.fetch(RemoteFile(gone, "b.txt"), target, bytes_max=1_000)
