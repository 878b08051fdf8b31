"""The platform for Discord: the gateway's socket in, the HTTP API out."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import aiohttp
import anyio
import msgspec
import yarl
from discord import Client, File, HTTPException, Intents
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import Route
from msgspec import Meta

from everturn.domain.clock import Clock
from everturn.domain.delivery import (
    Button,
    Chat,
    ChatKind,
    NewPart,
    OutgoingPart,
    RemoteFile,
    SeenChat,
)
from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.platform import Deliver, Features, FindSeen, Identity, Promises, SendLimits
from everturn.gateway.dialects import Dialect, escape_discord
from everturn.gateway.discord.client import DiscordHttp, TokenRefused, translate_errors
from everturn.gateway.discord.updates import UpdateReader
from everturn.gateway.rendering import render

SECRETS: Final = ("token",)
CONFIG_ONLY: Final = ("api_url", "gateway_url")  # the token is sent there
SENT_TO: Final = CONFIG_ONLY
_EVENTS: Final = ("READY", "MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "INTERACTION_CREATE")
_TEXT_MAX: Final = 2_000
_ADDRESS: Final = re.compile(r"https?://[\w.:/#?=&%+-]+")
_NONCE_CHARS_MAX: Final = 25
_NO_PREVIEWS: Final = 4  # a flag of messages
_ROW_MAX: Final = 5  # buttons side by side
_PRESS_SEEN: Final = 6  # the answer to a press that changes nothing
_WRONG_TOKEN_PAUSE_S: Final = 60.0
_CONNECT_MAX_S: Final = 60.0
_CLOSE_MAX_S: Final = 2.0
_PAGE_MAX: Final = 100  # messages of a chat's history
_PAGES_MAX: Final = 5
_CONNECTED_MIN_S: Final = 10.0  # after a shorter connection, wait before the next one
_FILE_HOSTS: Final = ("cdn.discordapp.com", "media.discordapp.net")
_log = logging.getLogger("everturn.gateway")


class DiscordSettings(msgspec.Struct, frozen=True, kw_only=True):
    api_url: Annotated[str, Meta(description=f"The HTTP API with its version, as in {Route.BASE}.")] = (
        Route.BASE
    )
    gateway_url: Annotated[
        str, Meta(description="The gateway's socket. It is not asked for: set it together with api_url.")
    ] = str(DiscordWebSocket.DEFAULT_GATEWAY)


def platform(
    account: str, settings: DiscordSettings, secrets: Mapping[str, str], clock: Clock
) -> DiscordPlatform:
    return DiscordPlatform(account, secrets["token"], settings, clock)


class _ResumePoint(msgspec.Struct, frozen=True):
    """Where a new socket continues: after the last event that was stored."""

    gateway: yarl.URL
    session: str
    sequence: int


class _Press(msgspec.Struct, frozen=True):
    """What is needed to answer an interaction."""

    id: str
    token: str


class DiscordPlatform:
    name = "discord"
    # A lost socket is resumed after the last event that was stored. A new process reads its chats' history.
    promises = Promises(deduplicates=True, redelivers=True)
    limits = SendLimits(per_s_max=40, chat_spacing_s=1)
    features = Features(edits=True, buttons=True, files=True, typing=True)

    def __init__(self, account: str, token: str, settings: DiscordSettings, clock: Clock) -> None:
        self._account = account
        self._token = token
        self._settings = settings
        self._clock = clock
        self._http: DiscordHttp | None = None
        self._opening = anyio.Lock()
        self._resume: _ResumePoint | None = None
        self._find_seen: FindSeen | None = None
        self._events: list[tuple[str, object]] = []  # read from the socket and not delivered
        self.unknown_updates = 0

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def identify(self) -> Identity:
        try:
            with translate_errors(is_harmless_twice=True):
                http = await self._open()
                me = await http.request(Route("GET", "/users/@me"))
        except PlatformRefused as error:
            if self._settings.api_url != Route.BASE:  # it may not be Discord that refuses
                error.hint = f"Asked at {self._settings.api_url}. Is that api_url right? {error.hint}".strip()
            raise
        return Identity(me["id"], me["username"], f"https://discord.com/users/{me['id']}")

    async def _open(self) -> DiscordHttp:
        """The client, once Discord has accepted the token."""
        async with self._opening:
            if self._http is None:
                http = DiscordHttp(self._settings.api_url)
                try:
                    await http.static_login(self._token)
                except BaseException:
                    await http.close()
                    raise
                self._http = http
            return self._http

    # --- receiving -----------------------------------------------------------------------------------

    async def receive(self, deliver: Deliver) -> None:
        reader = UpdateReader(self._account, await self.identify())
        while True:
            started = self._clock.monotonic()
            with translate_errors(is_harmless_twice=True):
                socket = await self._connect()
            try:
                await self._follow(socket, reader, deliver)
            except ReconnectWebSocket as closed:
                if not closed.resume:
                    self._resume = None
            finally:
                with anyio.move_on_after(_CLOSE_MAX_S, shield=True):
                    await socket.close()
            if self._clock.monotonic() - started < _CONNECTED_MIN_S:
                raise PlatformBusy("Discord closes the connection again and again.")

    async def _connect(self) -> DiscordWebSocket:
        # Without the privileged intent Discord leaves out what is written in servers unless the bot is
        # mentioned, which is what we want.
        client = Client(intents=Intents(guild_messages=True, dm_messages=True, guilds=True))
        client.http = await self._open()
        await client._async_setup_hook()
        point = self._resume
        gateway = yarl.URL(self._settings.gateway_url) if point is None else point.gateway
        connecting = DiscordWebSocket.from_client(
            client,
            initial=True,
            gateway=gateway,
            session=point.session if point else None,
            sequence=point.sequence if point else None,
            resume=point is not None,
        )
        socket = await asyncio.wait_for(connecting, _CONNECT_MAX_S)
        # Its own parsers keep a copy of every server's state, and start a task for each message: those of one
        # chat would overtake each other.
        self._events.clear()
        socket._discord_parsers = {event: partial(self._note, event) for event in _EVENTS}
        return socket

    def _note(self, event: str, data: object) -> None:
        self._events.append((event, data))

    async def _follow(self, socket: DiscordWebSocket, reader: UpdateReader, deliver: Deliver) -> None:
        """Deliver what the socket gives. Raises ReconnectWebSocket when it is closed."""
        while True:
            with translate_errors(is_harmless_twice=True):
                await socket.poll_event()
            while self._events:
                await self._deliver(reader, *self._events[0], deliver)
                self._events.pop(0)
            if socket.session_id is not None and socket.sequence is not None:
                self._resume = _ResumePoint(socket.gateway, socket.session_id, socket.sequence)

    async def _deliver(self, reader: UpdateReader, event: str, data: object, deliver: Deliver) -> None:
        if event == "READY":  # of a new session, and not of one that is resumed
            await self._catch_up(reader, deliver)
            return
        update = reader.read(event, data)
        if update is None:
            self.unknown_updates += 1
            _log.debug("account %s: an event %s has no message of a person", self._account, event)
        else:
            await deliver(update)
        if event == "INTERACTION_CREATE":
            await self._answer_press(data)

    async def _answer_press(self, interaction: object) -> None:
        """Discord says that the press failed unless it is answered within three seconds."""
        try:
            press = msgspec.convert(interaction, _Press)
            route = Route("POST", "/interactions/{id}/{token}/callback", id=press.id, token=press.token)
            await (await self._open()).request(route, json={"type": _PRESS_SEEN})
        except (msgspec.ValidationError, HTTPException, aiohttp.ClientError, OSError) as error:
            _log.debug("account %s: a press is not answered: %s", self._account, type(error).__name__)

    # --- history -------------------------------------------------------------------------------------

    def use_history(self, find_seen: FindSeen) -> None:
        self._find_seen = find_seen

    async def _catch_up(self, reader: UpdateReader, deliver: Deliver) -> None:
        """Deliver what was written in known chats while there was no session. The inbox recognises messages
        that the socket delivers too."""
        for chat in await self._find_seen() if self._find_seen else ():
            try:
                await self._read_missed(chat, reader, deliver)
            except PlatformRefused as error:
                _log.info("account %s: %s is not read: %s", self._account, chat.place.chat, error)

    async def _read_missed(self, chat: SeenChat, reader: UpdateReader, deliver: Deliver) -> None:
        after = chat.number
        for _ in range(_PAGES_MAX):
            with translate_errors(is_harmless_twice=True):
                route = Route("GET", "/channels/{channel_id}/messages", channel_id=chat.place.chat)
                options = {"after": str(after), "limit": str(_PAGE_MAX)}
                page: list[JsonObject] = await (await self._open()).request(route, params=options)
            for message in sorted(page, key=lambda one: int(one["id"])):
                after = int(message["id"])
                # Messages of the history do not name their server.
                guild = {} if chat.place.kind is ChatKind.DIRECT else {"guild_id": "known"}
                await self._deliver(reader, "MESSAGE_CREATE", message | guild, deliver)
            if len(page) < _PAGE_MAX:
                return

    # --- sending -------------------------------------------------------------------------------------

    async def send(self, part: OutgoingPart) -> str:
        body = _body(part.body) | {
            "nonce": part.id[-_NONCE_CHARS_MAX:],
            "enforce_nonce": True,
            "flags": _NO_PREVIEWS,
        }
        if part.file is None:
            sent = await self._call(part.chat, "POST", "", json=body)
        else:
            # Opening it reads nothing.
            file = File(part.file.path, part.file.name)
            try:
                sent = await self._call(part.chat, "POST", "", form=_form(body, file), files=[file])
            finally:
                file.close()
        return str(sent["id"])

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        await self._call(chat, "PATCH", f"/{int(external_id)}", json=_body(body), is_harmless_twice=True)

    async def show_typing(self, chat: Chat) -> None:
        with translate_errors(is_harmless_twice=True):
            route = Route("POST", "/channels/{channel_id}/typing", channel_id=chat.place.chat)
            await (await self._open()).request(route)

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(text, "markdown") for text in render(markdown, Dialect.DISCORD, _TEXT_MAX)]

    async def _call(
        self, chat: Chat, method: str, path: str, *, is_harmless_twice: bool = False, **content: Json
    ) -> Json:
        """Send or change a message of a chat; Discord's answer."""
        try:
            # Nothing was sent if this fails.
            with translate_errors(is_harmless_twice=True):
                http = await self._open()
            with translate_errors(is_harmless_twice=is_harmless_twice):
                route = Route(method, f"/channels/{{channel_id}}/messages{path}", channel_id=chat.place.chat)
                return await http.request(route, **content)
        except TokenRefused as error:
            # What waits is sent when the account has a valid token again.
            raise PlatformBusy(error.message, after_s=_WRONG_TOKEN_PAUSE_S) from None

    # --- files ---------------------------------------------------------------------------------------

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        url = yarl.URL(file.ref)
        if url.host not in (*_FILE_HOSTS, yarl.URL(self._settings.api_url).host):
            raise PlatformRefused(f"{file.name} is not on Discord's servers.")
        if (file.size or 0) > bytes_max:
            raise _too_large(file, bytes_max)
        with translate_errors(is_harmless_twice=True):
            async with (
                aiohttp.ClientSession() as session,
                session.get(url, allow_redirects=False) as answer,
                await anyio.open_file(target, "wb") as written,
            ):
                if answer.status != 200:
                    raise PlatformRefused(f"Discord does not have {file.name} any more.")
                size = 0
                async for chunk in answer.content.iter_chunked(65_536):
                    size += len(chunk)
                    if size > bytes_max:
                        raise _too_large(file, bytes_max)
                    await written.write(chunk)


def _too_large(file: RemoteFile, bytes_max: int) -> PlatformRefused:
    return PlatformRefused(f"{file.name} is larger than {bytes_max:,} bytes.")


def _plain(text: str) -> str:
    """A text in no format, with nothing in it that Discord would read as formatting, such as a link under
    another name. A line that is an address stays one."""
    lines = text.split("\n")
    return "\n".join(line if _ADDRESS.fullmatch(line) else escape_discord(line) for line in lines)


def _body(body: NewPart) -> dict[str, object]:
    # No mentions: an answer must not call everyone in a server, whatever its text says.
    text = body.text if body.format else _plain(body.text)
    return {"content": text, "components": _rows(body.buttons), "allowed_mentions": {"parse": []}}


def _rows(buttons: Sequence[Button]) -> list[dict[str, object]]:
    keys = [
        {"type": 2, "label": button.label[:80]}
        | ({"style": 5, "url": button.url} if button.url else {"style": 2, "custom_id": button.data})
        for button in buttons
    ]
    return [{"type": 1, "components": keys[at : at + _ROW_MAX]} for at in range(0, len(keys), _ROW_MAX)]


def _form(body: dict[str, object], file: File) -> list[dict[str, object]]:
    attachments = {"attachments": [{"id": 0, "filename": file.filename}]}
    return [
        {"name": "payload_json", "value": msgspec.json.encode(body | attachments).decode()},
        {
            "name": "files[0]",
            "value": file.fp,
            "filename": file.filename,
            "content_type": "application/octet-stream",
        },
    ]
