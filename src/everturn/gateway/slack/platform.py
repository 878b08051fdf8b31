"""One Slack app: receives over Socket Mode, sends through the Web API."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, TypedDict
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec
from msgspec import Meta
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from everturn.domain.clock import Clock
from everturn.domain.delivery import Chat, NewPart, OutgoingFile, OutgoingPart, RemoteFile, Update
from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Deliver, Features, Identity, Promises, SendLimits
from everturn.gateway.dialects import Dialect, escape_slack
from everturn.gateway.rendering import render
from everturn.gateway.slack.history import find_missed
from everturn.gateway.slack.people import PeopleNames
from everturn.gateway.slack.updates import Frame, UpdateReader

TEXT_CHARS_MAX: Final = 3_000  # of a section, which a message with buttons consists of
REPEAT_NOTE: Final = "_This may be a repeat:_\n"
_LABEL_CHARS_MAX: Final = 75
_TIMEOUT_S: Final = 25
_HEARTBEAT_S: Final = 20.0
_RECONNECT_S: Final = 1.0
_RETRY_AFTER_MAX_S: Final = 24 * 3600.0
_CHUNK_BYTES: Final = 1 << 16
_TOKEN_ERRORS: Final = (
    "account_inactive",
    "invalid_auth",
    "missing_scope",
    "not_allowed_token_type",
    "not_authed",
    "token_expired",
    "token_revoked",
)
_BUSY_ERRORS: Final = ("ratelimited", "rate_limited", "request_timeout", "service_unavailable")
# With these errors, Slack itself says that the message may have been posted.
_UNKNOWN_ERRORS: Final = ("fatal_error", "internal_error")

_log = logging.getLogger("everturn.gateway.slack")
_frames = msgspec.json.Decoder(Frame)


class SlackSettings(msgspec.Struct, frozen=True, kw_only=True):
    api_url: Annotated[str, Meta(description="The address of the Web API.")] = "https://slack.com/api/"


class SlackTokens(msgspec.Struct, frozen=True, kw_only=True):
    """``bot`` (xoxb-…) reads and writes; ``app`` (xapp-…) opens the socket."""

    bot: str
    app: str


class _Content(TypedDict):
    """What a message shows. ``text`` is shown in notifications only, if there are blocks."""

    text: str
    blocks: list[JsonObject]


class SlackPlatform:
    name = "slack"
    # An event that is not acknowledged comes again three times: at once, after a minute, after five more.
    promises = Promises(deduplicates=False, redelivers=True, keeps_updates_s=360)
    limits = SendLimits(per_s_max=5, chat_spacing_s=1.0)
    features = Features(edits=True, buttons=True, files=True, typing=False)

    def __init__(self, account: str, settings: SlackSettings, tokens: SlackTokens, clock: Clock) -> None:
        self._account = account
        self._settings = settings
        self._tokens = tokens
        self._clock = clock
        # The library's own retries would post a message twice.
        self._web = AsyncWebClient(
            tokens.bot, base_url=settings.api_url, timeout=_TIMEOUT_S, retry_handlers=[]
        )
        self._names = PeopleNames(account, self._web, clock)
        self._is_lost = False  # the last connection ended, and Slack did not announce it
        self._newest_us = clock.now_ms() * 1000  # time of the newest message that was stored
        self.ignored = 0  # frames that were no update for us

    async def identify(self) -> Identity:
        bot = await self._bot()
        await self._socket_url()  # the other token is needed as well
        return bot

    async def _bot(self) -> Identity:
        with _outcomes(is_token_final=True):
            found = await self._web.auth_test()
        return Identity(str(found["user_id"]), str(found["user"]), str(found.get("url") or ""))

    # --- receiving -----------------------------------------------------------------------------------

    async def receive(self, deliver: Deliver) -> None:
        """Deliver what Slack sends. The library's socket client is not used: it runs each event in its own
        task, so that events overtake each other, and it retries for ever with a revoked token."""
        reader = UpdateReader(self._account, await self._bot())
        async with aiohttp.ClientSession() as session:
            while True:
                url = await self._socket_url()
                async with session.ws_connect(url, heartbeat=_HEARTBEAT_S) as socket:
                    if self._is_lost:
                        await self._deliver_missed(reader, deliver)
                    self._is_lost = True  # unless Slack ends the connection in order
                    await self._read_frames(socket, reader, deliver)
                    self._is_lost = False
                await self._clock.sleep(_RECONNECT_S)

    async def _deliver_missed(self, reader: UpdateReader, deliver: Deliver) -> None:
        """Deliver what was written while there was no connection. Repeats are recognised by their ids."""
        try:
            with _outcomes():
                missed = await find_missed(self._web, self._newest_us)
        except (PlatformBusy, PlatformRefused, SlackApiError, aiohttp.ClientError, TimeoutError) as error:
            _log.warning("account %s: messages of the last minutes may be missing: %s", self._account, error)
            return
        for frame in missed:
            await self._deliver(reader, frame, deliver)

    async def _deliver(self, reader: UpdateReader, frame: Frame, deliver: Deliver) -> None:
        update = self._update(reader, frame)
        if update is not None:
            # Only of those who talk to the bot: in a busy channel Slack would be asked about everyone.
            await deliver(await self._names.write_into(update) if update.is_addressed else update)
            self._newest_us = max(self._newest_us, update.number or 0)

    async def _socket_url(self) -> str:
        with _outcomes(is_token_final=True):
            return str((await self._web.apps_connections_open(app_token=self._tokens.app))["url"])

    async def _read_frames(
        self, socket: aiohttp.ClientWebSocketResponse, reader: UpdateReader, deliver: Deliver
    ) -> None:
        """Return when Slack asks for a new connection, which it does every few hours."""
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            frame = self._frame(message.data)
            if frame.type == "disconnect":
                if frame.reason == "link_disabled":
                    raise PlatformRefused("Socket Mode is switched off for this Slack app.")
                return
            if frame.envelope_id:
                # If this raises, Slack gets no acknowledgement and repeats the event.
                await self._deliver(reader, frame, deliver)
                await socket.send_json({"envelope_id": frame.envelope_id})
        raise ConnectionError("Slack closed the connection")

    def _frame(self, data: str) -> Frame:
        try:
            return _frames.decode(data)
        except msgspec.MsgspecError as error:
            _log.debug("account %s: a frame that cannot be read: %s", self._account, error)
            self.ignored += 1
            return Frame()

    def _update(self, reader: UpdateReader, frame: Frame) -> Update | None:
        update = None
        try:
            update = reader.read(frame)
        except msgspec.ValidationError as error:
            _log.debug("account %s: an event that cannot be read: %s", self._account, error)
        if update is None:
            self.ignored += 1
        return update

    # --- sending -------------------------------------------------------------------------------------

    async def send(self, part: OutgoingPart) -> str:
        if part.file is not None:
            return await self._send_file(part, part.file)
        place = part.chat.place
        with _outcomes():
            # No previews: Slack would fetch addresses that the answer made up.
            answer = await self._web.chat_postMessage(
                channel=place.chat,
                thread_ts=place.thread or None,
                unfurl_links=False,
                unfurl_media=False,
                **_content(part.body, note=REPEAT_NOTE if part.is_repeat else ""),
            )
        return str(answer["ts"])

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        with _outcomes():
            await self._web.chat_update(channel=chat.place.chat, ts=external_id, **_content(body))

    async def show_typing(self, chat: Chat) -> None:
        """Slack shows no such sign for apps."""

    def render(self, markdown: str) -> Sequence[NewPart]:
        limit = TEXT_CHARS_MAX - len(REPEAT_NOTE)
        return [NewPart(text, "mrkdwn") for text in render(markdown, Dialect.SLACK, limit)]

    async def _send_file(self, part: OutgoingPart, file: OutgoingFile) -> str:
        place = part.chat.place
        length = (await anyio.Path(file.path).stat()).st_size
        try:  # nothing is shown until the upload is completed
            with _outcomes():
                slot = await self._web.files_getUploadURLExternal(filename=file.name, length=length)
                await self._upload(str(slot["upload_url"]), file.path)
        except (aiohttp.ClientError, SlackApiError, TimeoutError) as error:
            raise PlatformBusy(f"Slack did not take the file {file.name}: {error}") from error
        with _outcomes():
            await self._web.files_completeUploadExternal(
                files=[{"id": str(slot["file_id"]), "title": file.name}],
                channel_id=place.chat,
                thread_ts=place.thread or None,
                initial_comment=(REPEAT_NOTE if part.is_repeat else "") + _text_of(part.body) or None,
            )
        return str(slot["file_id"])

    async def _upload(self, url: str, path: Path) -> None:
        with path.open("rb") as content:
            async with aiohttp.ClientSession() as session, session.post(url, data=content) as answer:
                answer.raise_for_status()

    # --- files of messages ---------------------------------------------------------------------------

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        if (file.size or 0) > bytes_max:
            raise _too_large(bytes_max)
        with _outcomes():
            found = (await self._web.files_info(file=file.ref))["file"]
        url = self._check_address(str(found.get("url_private_download") or found.get("url_private") or ""))
        headers = {"Authorization": f"Bearer {self._tokens.bot}"}
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(url, headers=headers, allow_redirects=False) as answer,
            ):
                _check_download(answer)
                await _write(answer, target, bytes_max)
        except aiohttp.ClientError as error:
            raise PlatformBusy(f"Slack did not give the file: {error}") from error

    def _check_address(self, url: str) -> str:
        """The address of a file, if it is Slack's: the token goes with the request."""
        host, own = urlsplit(url), urlsplit(self._settings.api_url)
        is_slack = host.scheme == "https" and (host.hostname or "").endswith(".slack.com")
        if is_slack or (host.scheme, host.netloc) == (own.scheme, own.netloc):
            return url
        raise PlatformRefused("Slack does not keep this file itself.")

    async def close(self) -> None:
        """Nothing to close: each call has a connection of its own."""


def _text_of(body: NewPart) -> str:
    """Slack reads signs in every text: in a plain one they would call people, or name a link as another."""
    return body.text if body.format else escape_slack(body.text)


def _content(body: NewPart, *, note: str = "") -> _Content:
    text = note + _text_of(body)
    if not body.buttons:
        return {"text": text, "blocks": []}  # none: an edit takes buttons away
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text[:TEXT_CHARS_MAX]}}
    buttons = [
        {
            "type": "button",
            "action_id": f"button{number}",
            "text": {"type": "plain_text", "text": button.label[:_LABEL_CHARS_MAX]},
            **({"url": button.url} if button.url else {"value": button.data}),
        }
        for number, button in enumerate(body.buttons)
    ]
    return {"text": text, "blocks": [section, {"type": "actions", "elements": buttons}]}


@contextmanager
def _outcomes(*, is_token_final: bool = False) -> Iterator[None]:
    """Turn Slack's errors into ours. An error that passes unchanged means that the outcome is unknown.

    ``is_token_final``: refuse a wrong token. When a message is sent, it waits for the right one instead.
    """
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise PlatformBusy(f"Slack cannot be reached: {error}") from error
    except SlackApiError as error:
        outcome = _outcome_of(error, is_token_final=is_token_final)
        if outcome is None:
            raise
        raise outcome from error


def _outcome_of(error: SlackApiError, *, is_token_final: bool) -> PlatformBusy | PlatformRefused | None:
    response = error.response
    # The library's own answer, or aiohttp's if the body could not be read.
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0))
    data = getattr(response, "data", None)
    reason = str(data.get("error") or "") if isinstance(data, dict) else ""
    if status == 429 or reason in _BUSY_ERRORS:
        return PlatformBusy("Slack asks to wait.", after_s=_retry_after(response.headers))
    if reason in _TOKEN_ERRORS:
        message = f"Slack refuses the token. It says: {reason}."
        return PlatformRefused(message) if is_token_final else PlatformBusy(message)
    if status >= 500 or reason in _UNKNOWN_ERRORS or not reason:
        return None
    return PlatformRefused(f"Slack refuses this: {reason}.")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = str(headers.get("Retry-After") or "").strip()
    return min(float(text), _RETRY_AFTER_MAX_S) if text.isascii() and text.isdigit() else None


def _check_download(answer: aiohttp.ClientResponse) -> None:
    if answer.status == 429:
        raise PlatformBusy("Slack asks to wait.", after_s=_retry_after(answer.headers))
    if 300 <= answer.status < 400:  # to the page where people sign in
        raise PlatformRefused("Slack does not give the file: the app needs the scope files:read.")
    if answer.status >= 500:
        raise PlatformBusy(f"Slack answered {answer.status}.")
    if answer.status != 200:
        raise PlatformRefused(f"Slack does not give the file: it answered {answer.status}.")


async def _write(answer: aiohttp.ClientResponse, target: Path, bytes_max: int) -> None:
    written = 0
    async with await anyio.open_file(target, "wb") as out:
        async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
            written += len(chunk)
            if written > bytes_max:
                raise _too_large(bytes_max)
            await out.write(chunk)


def _too_large(bytes_max: int) -> PlatformRefused:
    return PlatformRefused(f"The file is larger than {bytes_max // 1_000_000} MB.")
