"""Slack, with its real client library against a stand-in of its service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from slack_sdk.errors import SlackApiError

from everturn.domain.clock import SystemClock
from everturn.domain.delivery import Chat, ChatKind, ChatPlace, NewPart, RemoteFile, Update, UpdateKind
from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.domain.platform import Identity
from everturn.gateway.slack import SlackPlatform, SlackSettings
from everturn.gateway.slack import platform as make_platform
from everturn.gateway.slack.updates import Frame, UpdateReader
from everturn.testing.platform_conformance import Receiver, RichPlatformConformance, part_of
from everturn.testing.ports import free_port
from everturn.testing.waiting import within
from tests.slack_service import APP_TOKEN, BOT, BOT_TOKEN, DIRECT, PERSON, SlackService

pytestmark = pytest.mark.anyio
CHANNEL = "C_TEAM"
TOKENS = {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN}


@pytest.fixture
async def service(anyio_backend: str) -> AsyncIterator[SlackService]:
    service = SlackService()
    async with service.serve():
        yield service


def platform_at(url: str) -> SlackPlatform:
    made = make_platform("team", SlackSettings(api_url=f"{url}/api/"), TOKENS, SystemClock())
    assert isinstance(made, SlackPlatform)
    return made


@pytest.fixture
def platform(service: SlackService) -> SlackPlatform:
    return platform_at(service.url)


@pytest.fixture
def chat() -> Chat:
    return Chat("cht_x", "ada", ChatPlace("team", "slack", ChatKind.DIRECT, DIRECT), "default", "", None, 0)


class TestSlack(RichPlatformConformance):
    pass


@asynccontextmanager
async def receiving(platform: SlackPlatform) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with anyio.create_task_group() as group:
        group.start_soon(platform.receive, receiver.deliver)
        yield receiver
        group.cancel_scope.cancel()


async def until(fact: Callable[[], object], what: str) -> None:
    with within(what):
        while not fact():
            await anyio.sleep(0.005)


# --- names -------------------------------------------------------------------------------------------


async def test_people_are_called_by_their_names_and_slack_is_asked_once(
    platform: SlackPlatform, service: SlackService
) -> None:
    service.people["U_GRACE"] = {"real_name": "Grace Hopper", "profile": {"display_name": ""}}
    async with receiving(platform) as receiver:
        service.say("hello")
        service.say("ask <@U_GRACE> and <@U_NOBODY>")
        service.say("<@U_GRACE> again")
        found = await receiver.has(3)
    assert [update.sender_name for update in found] == ["Ada Lovelace"] * 3
    assert [update.text for update in found[1:]] == ["ask @Grace Hopper and @U_NOBODY", "@Grace Hopper again"]
    assert {update.sender for update in found} == {PERSON}  # who may talk is decided by the id
    assert service.calls.count("users.info") == 3


async def test_a_message_arrives_without_a_name_if_slack_does_not_say_it(
    platform: SlackPlatform, service: SlackService, caplog: pytest.LogCaptureFixture
) -> None:
    service.may_read_names = False  # an app that was installed with fewer scopes
    async with receiving(platform) as receiver:
        service.say("hello")
        service.say("again")
        found = await receiver.has(2)
    assert [update.sender_name for update in found] == ["", ""]
    assert service.calls.count("users.info") == 1
    assert "users:read" in caplog.text


async def test_names_that_do_not_come_hold_up_one_message_for_a_moment_only(
    platform: SlackPlatform, service: SlackService
) -> None:
    service.names_hang = True
    async with receiving(platform) as receiver:
        service.say("hello")
        service.say("again")
        found = await receiver.has(2)
    assert [update.text for update in found] == ["hello", "again"]
    assert service.calls.count("users.info") == 1


async def test_nobody_s_name_is_asked_for_who_does_not_talk_to_the_bot(
    platform: SlackPlatform, service: SlackService
) -> None:
    async with receiving(platform) as receiver:
        service.say("lunch?", CHANNEL)
        await receiver.has(1)
    assert "users.info" not in service.calls


# --- receiving ---------------------------------------------------------------------------------------


async def test_f01_slack_is_acknowledged_only_after_the_update_is_stored(
    platform: SlackPlatform, service: SlackService
) -> None:
    stored, began = anyio.Event(), anyio.Event()

    async def deliver(update: Update) -> None:
        began.set()
        await stored.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(platform.receive, deliver)
        service.say("hello")
        with within("the update is delivered"):
            await began.wait()
        assert service.acknowledged == []
        stored.set()
        await until(lambda: service.acknowledged, "the envelope is acknowledged")
        group.cancel_scope.cancel()


async def test_f01_a_repeated_event_has_the_same_id_and_a_mention_is_one_update(
    platform: SlackPlatform, service: SlackService
) -> None:
    async with receiving(platform) as receiver:
        event = service.say(f"<@{BOT}> hello", CHANNEL)
        service.emit_event({**event, "type": "app_mention"})
        service.emit_event(event)
        found = await receiver.has(3)
    assert len({update.id for update in found}) == 1
    assert {update.text for update in found} == {"hello"}


async def test_f02_an_older_message_that_comes_later_has_a_lower_number(
    platform: SlackPlatform, service: SlackService
) -> None:
    async with receiving(platform) as receiver:
        service.say("second", ts="1700000009.000200")
        service.say("first", ts="1700000009.000100")
        second, first = await receiver.has(2)
    assert first.number < second.number
    assert first.sent_at == 1_700_000_009_000


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_a_disconnect_frame_leads_to_a_new_connection(
    platform: SlackPlatform, service: SlackService, reason: str
) -> None:
    async with receiving(platform) as receiver:
        await until(lambda: service.connections == 1, "the first connection is there")
        await service.disconnect(reason)
        await until(lambda: service.connections == 2, "the second connection is there")
        service.say("hello")
        await receiver.has(1)


async def failure_while(platform: SlackPlatform, act: Callable[[], Coroutine[Any, Any, None]]) -> Exception:
    """What receiving raises while this is done."""
    async with anyio.create_task_group() as group:
        group.start_soon(act)
        try:
            with within("receiving fails"):
                await platform.receive(Receiver().deliver)
        except Exception as error:
            return error
    raise AssertionError("receiving did not fail")


async def test_socket_mode_that_is_switched_off_is_said(
    platform: SlackPlatform, service: SlackService
) -> None:
    async def act() -> None:
        await until(lambda: service.connections == 1, "the connection is there")
        await service.disconnect("link_disabled")

    error = await failure_while(platform, act)
    assert isinstance(error, PlatformRefused)
    assert "Socket Mode" in error.message


async def test_frames_that_are_no_updates_are_acknowledged_and_counted(
    platform: SlackPlatform, service: SlackService
) -> None:
    async with receiving(platform) as receiver:
        service.emit("events_api", {"event": {"type": "reaction_added", "user": PERSON}})
        service.emit("events_api", {"event": {"type": "message", "channel": 7}})
        service.emit(
            "events_api", {"event": {"type": "message", "subtype": "channel_join", "channel": CHANNEL}}
        )
        service.emit("events_api", None)
        service.emit("something_new", {"a": 1})
        service.emit("interactive", {"type": "view_submission"})
        service.say("from another bot", bot_id="B2")
        service.say("from the bot itself", user=BOT)
        service.say("hello")
        (update,) = await receiver.has(1)
        await until(lambda: len(service.acknowledged) == 9, "all are acknowledged")
        await service.send_raw("not JSON")
        await service.send_raw("[]")
        service.say("again")
        await receiver.has(2)
    assert update.text == "hello"
    assert platform.ignored == 10


async def test_a_lost_connection_is_an_error_and_the_next_one_delivers(
    platform: SlackPlatform, service: SlackService
) -> None:
    async def act() -> None:
        await until(lambda: service.connections == 1, "the connection is there")
        await service.drop_sockets()

    assert isinstance(await failure_while(platform, act), ConnectionError)
    async with receiving(platform) as receiver:
        service.say("hello")
        await receiver.has(1)


class _Earlier(SystemClock):
    """The stand-in's messages are from 2023."""

    def now_ms(self) -> int:
        return 1_600_000_000_000


async def test_f01_direct_messages_that_slack_did_not_deliver_are_fetched_after_a_lost_connection(
    service: SlackService,
) -> None:
    made = make_platform("team", SlackSettings(api_url=f"{service.url}/api/"), TOKENS, _Earlier())
    assert isinstance(made, SlackPlatform)
    async with receiving(made) as receiver:
        service.say("first")
        await receiver.has(1)
        await until(lambda: service.acknowledged, "it is acknowledged")

    for number in range(5):
        service.say_unheard(f"unheard {number}", f"D{number % 2}")
    async with receiving(made) as receiver:
        service.say("last")
        found = await receiver.has(6)
    assert [update.text for update in found[:5]] == [f"unheard {number}" for number in range(5)]
    assert "first" not in [update.text for update in found]
    assert len({update.id for update in found}) == 6


async def test_f01_messages_that_cannot_be_fetched_do_not_stop_receiving(
    service: SlackService, caplog
) -> None:
    platform = platform_at(service.url)

    async def act() -> None:
        await until(lambda: service.connections == 1, "the connection is there")
        await service.drop_sockets()

    await failure_while(platform, act)
    service.may_read_history = False
    async with receiving(platform) as receiver:
        service.say("hello")
        await receiver.has(1)
    assert "may be missing" in caplog.text


async def test_a_revoked_token_stops_receiving_with_a_reason(
    platform: SlackPlatform, service: SlackService
) -> None:
    service.revoke()
    error = await failure_while(platform, anyio.lowlevel.checkpoint)
    assert isinstance(error, PlatformRefused)
    assert "token_revoked" in error.message


async def test_a_deleted_message_is_delivered_as_a_deletion(
    platform: SlackPlatform, service: SlackService
) -> None:
    async with receiving(platform) as receiver:
        service.say("a secret")
        service.people_delete()
        said, deleted = await receiver.has(2)
    assert (deleted.kind, deleted.place, deleted.sender) == (UpdateKind.DELETION, said.place, PERSON)


# --- what an update says -----------------------------------------------------------------------------

READER = UpdateReader("team", Identity(BOT, "everturn"))


def read(**event: object) -> Update | None:
    message = {"type": "message", "user": PERSON, "text": "hi", "ts": "1700000000.000100", **event}
    return READER.read(Frame("events_api", "e", payload={"event": message}))


def test_a_message_in_a_channel_is_addressed_by_a_mention_or_a_reply_to_the_bot() -> None:
    plain = read(channel=CHANNEL)
    assert (plain.place.kind, plain.place.thread, plain.is_addressed) == (ChatKind.CHANNEL, plain_ts, False)
    assert read(channel=CHANNEL, text=f"<@{BOT}> hi").is_addressed
    assert read(channel=CHANNEL, text=f"so <@{BOT}|everturn>, hi").is_addressed
    assert read(channel=CHANNEL, thread_ts="1.2", parent_user_id=BOT).is_addressed
    assert not read(channel=CHANNEL, thread_ts="1.2", parent_user_id="U_BEN").is_addressed


plain_ts = "1700000000.000100"


def test_a_thread_is_a_chat_of_its_own() -> None:
    assert read(channel=DIRECT).place == ChatPlace("team", "slack", ChatKind.DIRECT, DIRECT)
    assert read(channel=DIRECT, thread_ts="1.2").place.thread == "1.2"
    assert read(channel=CHANNEL, thread_ts="1.2").place.thread == "1.2"


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (f"<@{BOT}> what is new?", "what is new?"),
        (f"ask <@{BOT}> or <@U_BEN|ben> in <#C1|general>", "ask @everturn or @ben in #general"),
        ("see <https://example.com/a?b=1&amp;c=2|the page>", "see the page (https://example.com/a?b=1&c=2)"),
        ("<https://example.com|example.com> <mailto:a@b.c|a@b.c>", "https://example.com a@b.c"),
        ("<!here> <!subteam^S1|@team> 1 &lt; 2 &amp;&amp; 3 &gt; 2", "@here @team 1 < 2 && 3 > 2"),
        ("a &amp;lt; b", "a &lt; b"),
        ("مرحبا 👩‍👩‍👧 <>", "مرحبا 👩‍👩‍👧 <>"),
    ],
)
def test_slack_s_markup_is_written_out(sent: str, text: str) -> None:
    assert read(channel=DIRECT, text=sent).text == text


def test_an_edit_that_only_adds_a_preview_is_nothing() -> None:
    before = {"user": PERSON, "text": "see https://example.com", "ts": "1.2"}
    assert read(channel=DIRECT, subtype="message_changed", message=before, previous_message=before) is None


def test_a_message_with_a_time_that_is_no_number_has_no_number() -> None:
    update = read(channel=DIRECT, ts="soon")
    assert (update.number, update.sent_at) == (None, None)


@pytest.mark.parametrize(
    ("command", "words", "text"),
    [
        ("/everturn", "new", "/new"),
        ("/everturn", "/switch 2", "/switch 2"),
        ("/everturn", "", "/help"),
        ("/new", "", "/new"),
    ],
)
def test_a_slash_command_is_a_message(command: str, words: str, text: str) -> None:
    slash = {"command": command, "text": words, "channel_id": CHANNEL, "user_id": PERSON, "trigger_id": "t1"}
    update = READER.read(Frame("slash_commands", "e", payload=slash))
    assert (update.text.strip(), update.sender, update.is_addressed) == (text, PERSON, True)


def test_a_button_that_opens_an_address_is_no_press() -> None:
    press = {
        "type": "block_actions",
        "user": {"id": PERSON},
        "channel": {"id": DIRECT},
        "message": {"ts": "1.2"},
        "actions": [{"action_id": "button0", "action_ts": "1.3"}],
    }
    assert READER.read(Frame("interactive", "e", payload=press)) is None


# --- sending -----------------------------------------------------------------------------------------


async def test_an_answer_goes_to_its_thread_without_previews(
    platform: SlackPlatform, service: SlackService, chat: Chat
) -> None:
    place = ChatPlace("team", "slack", ChatKind.CHANNEL, CHANNEL, "1.2")
    await platform.send(part_of(Chat("cht_y", "ada", place, "default", "", None, 0), NewPart("hello")))
    (message,) = service.posted
    assert (message["channel"], message["thread_ts"]) == (CHANNEL, "1.2")
    assert message["unfurl_links"] in (False, "0", "false", "False")


async def test_a_plain_text_calls_nobody_and_names_no_link_as_another(
    platform: SlackPlatform, service: SlackService, chat: Chat
) -> None:
    await platform.send(part_of(chat, NewPart("<!channel> <https://x.example|Allow> & more")))
    (message,) = service.posted
    assert message["text"] == "&lt;!channel&gt; &lt;https://x.example|Allow&gt; &amp; more"


async def test_f03_a_possible_repeat_is_marked(
    platform: SlackPlatform, service: SlackService, chat: Chat
) -> None:
    part = part_of(chat, platform.render("hello")[0])
    await platform.send(msgspec.structs.replace(part, is_repeat=True))
    assert "may be a repeat" in service.read()[0]


async def test_f03_an_error_500_after_the_message_was_posted_is_unknown(
    platform: SlackPlatform, service: SlackService, chat: Chat
) -> None:
    service.answer_500()
    with pytest.raises(Exception) as error:  # noqa: PT011 - any other error means: unknown
        await platform.send(part_of(chat, NewPart("hello")))
    assert not isinstance(error.value, (PlatformBusy, PlatformRefused))
    assert service.calls.count("chat.postMessage") == 1, "the library repeated it"


@pytest.mark.parametrize("reason", ["internal_error", "fatal_error"])
async def test_f03_an_error_after_which_slack_does_not_know_is_unknown(
    platform: SlackPlatform, service: SlackService, chat: Chat, reason: str
) -> None:
    service.refuse(reason)
    with pytest.raises(SlackApiError):
        await platform.send(part_of(chat, NewPart("hello")))


async def test_f03_a_message_waits_while_the_token_is_revoked(
    platform: SlackPlatform, service: SlackService, chat: Chat
) -> None:
    service.revoke()
    with pytest.raises(PlatformBusy, match="token_revoked"):
        await platform.send(part_of(chat, NewPart("hello")))


async def test_f03_slack_that_cannot_be_reached_has_not_taken_the_message(chat: Chat) -> None:
    with pytest.raises(PlatformBusy):
        await platform_at(f"http://127.0.0.1:{free_port()}").send(part_of(chat, NewPart("hello")))


async def test_an_answer_cannot_notify_a_whole_channel(platform: SlackPlatform) -> None:
    (part,) = platform.render("<!channel> and <@U_BEN> look")
    assert "<" not in part.text


async def test_a_wrong_app_token_is_refused(service: SlackService) -> None:
    wrong = make_platform(
        "team", SlackSettings(api_url=f"{service.url}/api/"), {**TOKENS, "app_token": "x"}, SystemClock()
    )
    with pytest.raises(PlatformRefused, match="invalid_auth"):
        await wrong.identify()


# --- files -------------------------------------------------------------------------------------------


async def test_a_file_of_a_message_is_fetched_after_it_was_delivered(
    platform: SlackPlatform, service: SlackService, tmp_path: Path
) -> None:
    service.stored_files["F1"] = b"a,b\n1,2\n"
    async with receiving(platform) as receiver:
        described = {"id": "F1", "name": "a.csv", "mimetype": "text/csv", "size": 8}
        service.say("look", subtype="file_share", files=[described])
        (update,) = await receiver.has(1)
    assert update.files == (RemoteFile("F1", "a.csv", "text/csv", 8),)
    await platform.fetch(update.files[0], tmp_path / "a", bytes_max=100)
    assert (tmp_path / "a").read_bytes() == b"a,b\n1,2\n"


@pytest.mark.parametrize("said_size", [50_000_000, None])
async def test_a_file_that_is_too_large_is_refused(
    platform: SlackPlatform, service: SlackService, tmp_path: Path, said_size: int | None
) -> None:
    service.stored_files["F1"] = bytes(2_000_000)
    with pytest.raises(PlatformRefused, match="larger than 1 MB"):
        await platform.fetch(RemoteFile("F1", size=said_size), tmp_path / "a", bytes_max=1_000_000)


async def test_a_file_that_is_gone_is_refused(platform: SlackPlatform, tmp_path: Path) -> None:
    with pytest.raises(PlatformRefused, match="file_not_found"):
        await platform.fetch(RemoteFile("F1"), tmp_path / "a", bytes_max=100)


async def test_the_token_is_sent_to_no_other_host(
    platform: SlackPlatform, service: SlackService, tmp_path: Path
) -> None:
    service.stored_files["F1"] = b"x"
    for host in (
        "http://files.slack.com",
        "https://slack.com.example.org",
        "https://evil.example",
        "file://",
    ):
        service.file_host = host
        with pytest.raises(PlatformRefused):
            await platform.fetch(RemoteFile("F1"), tmp_path / "a", bytes_max=100)
