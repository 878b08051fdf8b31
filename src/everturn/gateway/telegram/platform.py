"""The platform for Telegram: the Bot API, by long polling or as a webhook."""

from __future__ import annotations

import hashlib
import hmac
import html
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypedDict, TypeVar

import anyio
import msgspec
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import AiogramError, TelegramBadRequest, TelegramMigrateToChat
from aiogram.methods import TelegramMethod
from aiogram.types import (
    FSInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    Message,
)
from aiogram.utils.token import TokenValidationError
from msgspec import Meta

from everturn.domain.clock import Clock
from everturn.domain.delivery import Button, Chat, NewPart, OutgoingFile, OutgoingPart, RemoteFile, Update
from everturn.domain.errors import Denied, Invalid, PlatformBusy, PlatformRefused
from everturn.domain.json_types import JsonObject
from everturn.domain.platform import Deliver, Features, Identity, Promises, SendLimits
from everturn.gateway.dialects import Dialect
from everturn.gateway.rendering import render
from everturn.gateway.telegram.failures import TokenRefused, translate_errors
from everturn.gateway.telegram.updates import ALLOWED, Incoming, UpdateReader, group_albums, read_incoming

SECRETS: Final = ("token",)
CONFIG_ONLY: Final = ("api_url",)  # the token is sent there
SENT_TO: Final = CONFIG_ONLY
PROOF_HEADER: Final = "x-telegram-bot-api-secret-token"
_HTML: Final = "HTML"
_TEXT_MAX: Final = 4_000  # Telegram takes 4,096; a repeat has a line more
_CAPTION_MAX: Final = 1_024
_PHOTO_BYTES_MAX: Final = 10_000_000
_FILE_BYTES_MAX: Final = 50_000_000
_PHOTOS: Final = frozenset({"image/jpeg", "image/png", "image/webp"})
_REPEAT: Final = "<i>This may be a repeat:</i>\n"
_TAG: Final = re.compile(r"<[^<>]*>")
_ROW_CHARS_MAX: Final = 30  # of the labels of buttons side by side
_NO_PREVIEW: Final = LinkPreviewOptions(is_disabled=True)
_WRONG_TOKEN_PAUSE_S: Final = 60.0
_log = logging.getLogger("everturn.gateway")
T = TypeVar("T")


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True):
    api_url: Annotated[
        str, Meta(description="The Bot API server. Another one than Telegram's can take files of up to 2 GB.")
    ] = "https://api.telegram.org"
    webhook_url: Annotated[
        str,
        Meta(description="The public https address of `/hooks/<account>`. Empty: messages are polled for."),
    ] = ""


def platform(
    account: str, settings: TelegramSettings, secrets: Mapping[str, str], clock: Clock
) -> TelegramPlatform:
    return TelegramPlatform(account, secrets["token"], settings, clock)


class _GetUpdates(TelegramMethod[list[JsonObject]]):
    """Replaces the client's own method, in which one update that it cannot read fails the whole batch
    every time."""

    __returning__ = list[JsonObject]
    __api_method__ = "getUpdates"
    offset: int | None = None
    timeout: int
    allowed_updates: list[str] = ALLOWED


class _FileOptions(TypedDict):
    """What a photo and a document are sent with."""

    message_thread_id: int | None
    caption: str | None
    parse_mode: str | None
    reply_markup: InlineKeyboardMarkup | None


class TelegramPlatform:
    name = "telegram"
    promises = Promises(deduplicates=False, redelivers=True, keeps_updates_s=24 * 3600)
    limits = SendLimits(per_s_max=30, chat_spacing_s=1, group_spacing_s=3)
    features = Features(edits=True, buttons=True, files=True, typing=True)
    poll_s = 50  # how long one request waits for updates
    album_wait_s = 0.5  # for more pictures of an album

    def __init__(self, account: str, token: str, settings: TelegramSettings, clock: Clock) -> None:
        api = TelegramAPIServer.from_base(settings.api_url)
        try:
            self._bot = Bot(token, AiohttpSession(api=api))
        except TokenValidationError:
            raise Invalid(
                "This is not a token of a Telegram bot.",
                hint="Copy it from @BotFather; it looks like 123456:ABC-DEF.",
            ) from None
        self._account = account
        self._settings = settings
        self._clock = clock
        self._moved: dict[str, int] = {}  # groups that became supergroups: their new ids
        self._pressed, self._presses = anyio.create_memory_object_stream[str](100)
        self.unknown_updates = 0

    async def close(self) -> None:
        self._pressed.close()
        self._presses.close()
        await self._bot.session.close()

    async def identify(self) -> Identity:
        with translate_errors(is_harmless_twice=True):
            me = await self._bot.get_me()
        return Identity(str(me.id), f"@{me.username}", f"https://t.me/{me.username}")

    # --- receiving -----------------------------------------------------------------------------------

    async def receive(self, deliver: Deliver) -> None:
        me = await self.identify()
        if self._settings.webhook_url:
            await self._receive_hooks(me)
        else:
            await self._poll(UpdateReader(self._account, me), deliver)

    async def _poll(self, reader: UpdateReader, deliver: Deliver) -> None:
        with translate_errors(is_harmless_twice=True):
            await self._bot.delete_webhook(drop_pending_updates=False)
        offset: int | None = None
        while True:
            groups = await self._next_batch(offset)
            for group in groups:
                await self._deliver(reader, group, deliver)
            # Only the next request acknowledges what was delivered: after a quiet week Telegram counts from
            # another number, and an old, higher offset would acknowledge updates that were not read.
            ids = [incoming.update_id for group in groups for incoming in group]
            offset = max(ids) + 1 if ids else None

    async def _next_batch(self, offset: int | None) -> list[tuple[Incoming, ...]]:
        """Updates that are not acknowledged, once the album at their end is complete."""
        batch = await self._updates(offset, self.poll_s)
        while batch and batch[-1].album is not None:
            await self._clock.sleep(self.album_wait_s)
            again = await self._updates(offset, 0)
            if len(again) <= len(batch):
                break
            batch = again
        return group_albums(batch)

    async def _updates(self, offset: int | None, timeout_s: int) -> list[Incoming]:
        with translate_errors(is_harmless_twice=True):
            raw = await self._bot(
                _GetUpdates(offset=offset, timeout=timeout_s), request_timeout=timeout_s + 15
            )
        return [read_incoming(update) for update in raw]

    async def _deliver(self, reader: UpdateReader, group: Sequence[Incoming], deliver: Deliver) -> None:
        update = reader.read(group)
        if update is None:
            self._note_unknown(group[0])
        else:
            await deliver(update)
        for incoming in group:
            if incoming.callback_query is not None:
                await self._answer_press(incoming.callback_query.id)

    def _note_unknown(self, incoming: Incoming) -> None:
        self.unknown_updates += 1
        _log.debug("account %s: update %d is of no known kind", self._account, incoming.update_id)

    async def _answer_press(self, query_id: str) -> None:
        """Stop the waiting sign on the button. Telegram shows it for some seconds if this fails."""
        try:
            await self._bot.answer_callback_query(query_id)
        except AiogramError as error:
            _log.debug("account %s: a press is not answered: %s", self._account, type(error).__name__)

    # --- receiving by webhook ------------------------------------------------------------------------

    async def _receive_hooks(self, me: Identity) -> None:
        """Tell Telegram where to post; updates then come in through ``read_update``, on any worker."""
        with translate_errors(is_harmless_twice=True):
            await self._bot.set_webhook(
                self._settings.webhook_url,
                allowed_updates=ALLOWED,
                secret_token=self._hook_secret(me.name),
                max_connections=1,  # one after the other, in their order
                drop_pending_updates=False,
            )
        async for query_id in self._presses:
            await self._answer_press(query_id)

    def read_update(self, headers: Mapping[str, str], body: bytes) -> Update | None:
        """The update in a request. Raises Denied unless Telegram sent it for this account, Invalid."""
        given = headers.get(PROOF_HEADER, "")
        bot_name = "@" + given.rpartition("-")[0]
        if not hmac.compare_digest(given.encode(), self._hook_secret(bot_name).encode()):
            raise Denied("The webhook was not called by Telegram.", hint="Its secret is missing or wrong.")
        try:
            incoming = read_incoming(msgspec.json.decode(body, type=JsonObject))
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            raise Invalid("The body of the webhook is not an update.", hint="Nothing was stored.") from error
        reader = UpdateReader(self._account, Identity(str(self._bot.id), bot_name))
        update = reader.read([incoming])
        if update is None:
            self._note_unknown(incoming)
        if incoming.callback_query is not None and self._pressed.statistics().current_buffer_used < 100:
            self._pressed.send_nowait(incoming.callback_query.id)
        return update

    def _hook_secret(self, bot_name: str) -> str:
        """Proves that Telegram posts, and tells a worker that never asked the bot's name."""
        name = bot_name.removeprefix("@")
        proof = hmac.new(self._bot.token.encode(), f"webhook {name}".encode(), hashlib.sha256)
        return f"{name}-{proof.hexdigest()}"

    # --- sending -------------------------------------------------------------------------------------

    async def send(self, part: OutgoingPart) -> str:
        async def send(chat_id: int) -> Message:
            if part.file is not None:
                return await self._send_file(chat_id, part, part.file)
            return await self._send_text(chat_id, part)

        return str((await self._in_chat(part.chat, send, is_harmless_twice=False)).message_id)

    async def edit(self, chat: Chat, external_id: str, body: NewPart) -> None:
        async def edit(chat_id: int) -> None:
            try:
                await self._bot.edit_message_text(
                    body.text,
                    chat_id=chat_id,
                    message_id=int(external_id),
                    parse_mode=body.format or None,
                    link_preview_options=_NO_PREVIEW,
                    reply_markup=_keyboard(body.buttons),
                )
            except TelegramBadRequest as error:
                if "message is not modified" not in error.message:
                    raise

        await self._in_chat(chat, edit, is_harmless_twice=True)

    async def show_typing(self, chat: Chat) -> None:
        async def show(chat_id: int) -> None:
            await self._bot.send_chat_action(chat_id, "typing", message_thread_id=_thread(chat))

        await self._in_chat(chat, show, is_harmless_twice=True)

    def render(self, markdown: str) -> Sequence[NewPart]:
        return [NewPart(text, _HTML) for text in render(markdown, Dialect.TELEGRAM, _TEXT_MAX)]

    async def _in_chat(self, chat: Chat, act: Callable[[int], Awaitable[T]], *, is_harmless_twice: bool) -> T:
        """Act in the chat, also if it has become a supergroup with another id."""
        name = chat.place.chat
        try:
            with translate_errors(is_harmless_twice=is_harmless_twice):
                try:
                    return await act(self._moved.get(name, int(name)))
                except TelegramMigrateToChat as moved:
                    self._moved[name] = moved.migrate_to_chat_id
                    return await act(moved.migrate_to_chat_id)
        except TokenRefused as error:
            # What waits is sent when the account has a valid token again.
            raise PlatformBusy(error.message, after_s=_WRONG_TOKEN_PAUSE_S) from None

    async def _send_text(self, chat_id: int, part: OutgoingPart) -> Message:
        async def send(text: str, parse_mode: str | None) -> Message:
            return await self._bot.send_message(
                chat_id,
                text,
                message_thread_id=_thread(part.chat),
                parse_mode=parse_mode,
                link_preview_options=_NO_PREVIEW,
                reply_markup=_keyboard(part.body.buttons),
            )

        text, parse_mode = _text_of(part)
        try:
            return await send(text, parse_mode)
        except TelegramBadRequest as error:
            if "can't parse entities" not in error.message:
                raise
            return await send(html.unescape(_TAG.sub("", text)), None)

    async def _send_file(self, chat_id: int, part: OutgoingPart, file: OutgoingFile) -> Message:
        caption, parse_mode = _text_of(part)
        size = (await anyio.Path(file.path).stat()).st_size
        if size > _FILE_BYTES_MAX:
            raise PlatformRefused(f"{file.name} has {size:,} bytes; Telegram takes {_FILE_BYTES_MAX:,}.")
        if len(caption) > _CAPTION_MAX:
            raise PlatformRefused(f"The text below {file.name} is longer than {_CAPTION_MAX:,} characters.")
        options: _FileOptions = {
            "message_thread_id": _thread(part.chat),
            "caption": caption or None,
            "parse_mode": parse_mode,
            "reply_markup": _keyboard(part.body.buttons),
        }
        if file.media_type in _PHOTOS and size <= _PHOTO_BYTES_MAX:
            try:
                return await self._bot.send_photo(chat_id, FSInputFile(file.path, file.name), **options)
            except TelegramBadRequest as error:
                if not re.search("photo|image", error.message, re.IGNORECASE):
                    raise  # otherwise it is no picture that Telegram can show
        document = FSInputFile(file.path, file.name)
        return await self._bot.send_document(
            chat_id, document, disable_content_type_detection=True, **options
        )

    # --- files ---------------------------------------------------------------------------------------

    async def fetch(self, file: RemoteFile, target: Path, *, bytes_max: int) -> None:
        if (file.size or 0) > bytes_max:
            raise _too_large(file, bytes_max)
        with translate_errors(is_harmless_twice=True):
            found = await self._bot.get_file(file.ref)
            url = self._bot.session.api.file_url(self._bot.token, found.file_path or "")
            size = 0
            async with await anyio.open_file(target, "wb") as written:
                async for chunk in self._bot.session.stream_content(url, timeout=110):
                    size += len(chunk)
                    if size > bytes_max:
                        raise _too_large(file, bytes_max)
                    await written.write(chunk)


def _too_large(file: RemoteFile, bytes_max: int) -> PlatformRefused:
    return PlatformRefused(f"{file.name} is larger than {bytes_max:,} bytes.")


def _thread(chat: Chat) -> int | None:
    return int(chat.place.thread) if chat.place.thread else None


def _text_of(part: OutgoingPart) -> tuple[str, str | None]:
    """The text of a part and its format. A repeat says that it may be one."""
    if not part.is_repeat:
        return part.body.text, part.body.format or None
    text = part.body.text if part.body.format else html.escape(part.body.text, quote=False)
    return _REPEAT + text, _HTML


def _keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """Buttons side by side, or below each other if their labels are long."""
    if not buttons:
        return None
    keys = [
        InlineKeyboardButton(text=button.label, callback_data=button.data or None, url=button.url or None)
        for button in buttons
    ]
    is_wide = sum(len(button.label) for button in buttons) > _ROW_CHARS_MAX
    return InlineKeyboardMarkup(inline_keyboard=[[key] for key in keys] if is_wide else [keys])
