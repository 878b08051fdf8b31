"""A stand-in of Telegram's Bot API on loopback: people who write and press, and failures of every kind.

``python -m tests.telegram_api PORT`` serves it by hand: each line of the input is said in a private chat.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from enum import Enum, auto
from html import unescape
from html.parser import HTMLParser
from typing import Any

from aiohttp import web

from everturn.testing.platform_conformance import RETRY_AFTER_S

BOT_ID = 4242
TOKEN = f"{BOT_ID}:AAHfiqksKZ8WmR2zSjiQ7_v4TMAKdiHm9T0"
BOT_NAME = "helper_bot"
ADA = {"id": 7, "is_bot": False, "first_name": "Ada", "last_name": "Lovelace"}
PRIVATE = {"id": 7, "type": "private", "first_name": "Ada", "last_name": "Lovelace"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Engines", "is_forum": True}
TEXT_MAX, CAPTION_MAX = 4096, 1024
_TAGS = {"b", "i", "s", "u", "a", "code", "pre", "blockquote"}


class Failure(Enum):
    BUSY = auto()
    REFUSE = auto()
    BREAK_OFF = auto()  # after it was taken
    ERROR_AFTER = auto()  # 500, after it was taken
    ERROR = auto()  # 502 with a page, before it was taken
    DROP = auto()  # the connection ends before it was taken


class _Refusal(Exception):
    def __init__(self, status: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.status = status
        self.parameters = parameters


class TelegramService:
    """``sent``: our messages by their number, as people see them; ``gone``: chats by why they are refused."""

    def __init__(self) -> None:
        self.port = 0
        self.calls: list[str] = []  # methods, in order
        self.updates: list[dict[str, Any]] = []  # not acknowledged
        self.acknowledged: list[int] = []
        self.sent: dict[int, dict[str, Any]] = {}
        self.remote_files: dict[str, bytes] = {}
        self.failures: list[Failure] = []  # of the next sends
        self.poll_failures: list[Failure] = []
        self.gone: dict[int, str] = {}
        self.moved: dict[int, int] = {}
        self.webhook: dict[str, str] = {}
        self.answered: list[str] = []  # presses
        self.is_revoked = False
        self.repeats = 0  # so many acknowledgements are forgotten
        self.shuffles = False
        self.refuses_photos = False
        self.last_update = 100
        self._last_message = 0
        self._polls = 0
        self._last_said: dict[str, Any] = {}
        self._said = asyncio.Event()

    # --- people --------------------------------------------------------------------------------------

    def say(self, text: str, chat: dict[str, Any] = PRIVATE, **more: Any) -> None:
        self.post(chat, text=text, **more)

    def post(self, chat: dict[str, Any] = PRIVATE, **content: Any) -> None:
        """Let Ada post a message with any content."""
        self._last_said = {"message_id": self._number(), "date": 1_800_000_000, "chat": chat, "from": ADA}
        self._last_said |= content
        self.push("message", self._last_said)

    def people_edit(self, text: str) -> None:
        self.push("edited_message", self._last_said | {"text": text, "edit_date": 1_800_000_001})

    def people_press(self, label: str) -> None:
        message = self._ours()[-1]
        data = next(key["callback_data"] for key in self._keys(message) if key["text"] == label)
        shown = {name: message[name] for name in ("message_id", "date", "chat")}
        topic = {name: message[name] for name in ("message_thread_id", "is_topic_message") if name in message}
        self.push("callback_query", {"id": "q1", "from": ADA, "message": shown | topic, "data": data})

    def push(self, kind: str, content: Any) -> None:
        self.last_update += 1
        self.updates.append({"update_id": self.last_update, kind: content})
        self._said.set()

    def read(self, chat: dict[str, Any] = PRIVATE) -> list[str]:
        return [message["shown"] for message in self._ours(chat)]

    def labels(self) -> list[str]:
        return [key["text"] for key in self._keys(self._ours()[-1])]

    def files(self) -> list[tuple[str, bytes]]:
        return [message["file"] for message in self.sent.values() if "file" in message]

    def lose_messages(self) -> None:
        self.sent.clear()

    def revoke(self) -> None:
        self.is_revoked = True

    def be_busy(self) -> None:
        self.failures.append(Failure.BUSY)

    def refuse(self) -> None:
        self.failures.append(Failure.REFUSE)

    def break_off(self) -> None:
        self.failures.append(Failure.BREAK_OFF)

    def _ours(self, chat: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        return [one for one in self.sent.values() if chat is None or one["chat"]["id"] == chat["id"]]

    def _keys(self, message: dict[str, Any]) -> Iterable[dict[str, Any]]:
        return [key for row in message.get("keyboard", []) for key in row]

    def _number(self) -> int:
        self._last_message += 1
        return self._last_message

    # --- the server ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[None]:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_post("/bot{token}/{method}", self._call)
        app.router.add_get("/file/bot{token}/{path:.*}", self._file)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method, form = request.match_info["method"], dict(await request.post())
        self.calls.append(method)
        try:
            if self.is_revoked or request.match_info["token"] != TOKEN:
                raise _Refusal(401, "Unauthorized")
            result = await getattr(self, f"_{method}")(form)
        except _Refusal as error:
            answer = {"ok": False, "error_code": error.status, "description": str(error)}
            return web.json_response(answer | {"parameters": error.parameters}, status=error.status)
        except BrokenOff:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        except _BadGateway:
            return web.Response(status=502, text="<html>Bad Gateway</html>")
        return web.json_response({"ok": True, "result": result})

    async def _file(self, request: web.Request) -> web.Response:
        content = self.remote_files.get(request.match_info["path"].removeprefix("files/"))
        return web.Response(status=404) if content is None else web.Response(body=content)

    # --- methods of the Bot API ----------------------------------------------------------------------

    async def _getMe(self, form: dict[str, Any]) -> Any:  # noqa: N802 - the API's name, like all below
        return {"id": BOT_ID, "is_bot": True, "first_name": "Helper", "username": BOT_NAME}

    async def _deleteWebhook(self, form: dict[str, Any]) -> bool:  # noqa: N802
        self.webhook = {}
        return True

    async def _setWebhook(self, form: dict[str, Any]) -> bool:  # noqa: N802
        self.webhook = form
        return True

    async def _getUpdates(self, form: dict[str, Any]) -> Any:  # noqa: N802
        if self.webhook:
            raise _Refusal(409, "Conflict: can't use getUpdates method while webhook is active")
        self._polls += 1
        poll = self._polls
        if self.poll_failures:
            _fail(self.poll_failures.pop(0))
        self.acknowledge(int(form.get("offset", 0)))
        self._said.set()  # another poll that waits is over
        self._said = asyncio.Event()
        if not self.updates and int(form.get("timeout", 0)):
            try:
                await asyncio.wait_for(self._said.wait(), int(form["timeout"]))
            except TimeoutError:
                return []
        if poll != self._polls:
            raise _Refusal(409, "Conflict: terminated by other getUpdates request")
        batch = self.updates[:100]
        return random.Random(7).sample(batch, len(batch)) if self.shuffles else batch

    def acknowledge(self, offset: int) -> None:
        done = [update["update_id"] for update in self.updates if update["update_id"] < offset]
        if done and self.repeats:
            self.repeats -= 1
            return
        self.acknowledged += done
        self.updates = self.updates[len(done) :]

    async def _answerCallbackQuery(self, form: dict[str, Any]) -> bool:  # noqa: N802
        self.answered.append(form["callback_query_id"])
        return True

    async def _sendChatAction(self, form: dict[str, Any]) -> bool:  # noqa: N802
        self._chat(form)
        return True

    async def _getFile(self, form: dict[str, Any]) -> Any:  # noqa: N802
        name = form["file_id"]
        if name not in self.remote_files:
            raise _Refusal(400, "Bad Request: file is too big")
        return {"file_id": name, "file_unique_id": name, "file_path": f"files/{name}"}

    async def _sendMessage(self, form: dict[str, Any]) -> Any:  # noqa: N802
        return self.send(form, {"shown": _shown(form, "text", TEXT_MAX)})

    async def _sendDocument(self, form: dict[str, Any]) -> Any:  # noqa: N802
        return self._send_file(form, "document")

    async def _sendPhoto(self, form: dict[str, Any]) -> Any:  # noqa: N802
        if self.refuses_photos:
            raise _Refusal(400, "Bad Request: PHOTO_INVALID_DIMENSIONS")
        return self._send_file(form, "photo")

    async def _editMessageText(self, form: dict[str, Any]) -> Any:  # noqa: N802
        self._chat(form)
        message = self.sent.get(int(form["message_id"]))
        if message is None:
            raise _Refusal(400, "Bad Request: message to edit not found")
        changed = {"shown": _shown(form, "text", TEXT_MAX), "keyboard": _keyboard(form)}
        if message | changed == message:
            raise _Refusal(400, "Bad Request: message is not modified: specified new message content")
        message |= changed
        self.sent[message["message_id"]] = message
        return _answer(message)

    def _send_file(self, form: dict[str, Any], kind: str) -> Any:
        field = form[form[kind].removeprefix("attach://")]
        caption = _shown(form, "caption", CAPTION_MAX) if "caption" in form else ""
        return self.send(form, {"shown": caption, "file": (field.filename, field.file.read()), "kind": kind})

    def send(self, form: dict[str, Any], content: dict[str, Any]) -> Any:
        chat = self._chat(form)
        failure = self.failures.pop(0) if self.failures else None
        if failure not in (None, Failure.BREAK_OFF, Failure.ERROR_AFTER):
            _fail(failure)
        number = self._number()
        message = {"message_id": number, "date": 1_800_000_000, "chat": chat, "keyboard": _keyboard(form)}
        if "message_thread_id" in form:
            message |= {"message_thread_id": int(form["message_thread_id"]), "is_topic_message": True}
        self.sent[number] = message | content
        if failure is not None:
            _fail(failure)
        return _answer(message)

    def _chat(self, form: dict[str, Any]) -> dict[str, Any]:
        chat_id = int(form["chat_id"])
        if chat_id in self.moved:
            moved = self.moved[chat_id]
            text = "Bad Request: group chat was upgraded to a supergroup chat"
            raise _Refusal(400, text, migrate_to_chat_id=moved)
        if chat_id in self.gone:
            status = 403 if self.gone[chat_id].startswith("Forbidden") else 400
            raise _Refusal(status, self.gone[chat_id])
        return {"id": chat_id, "type": "private" if chat_id > 0 else "supergroup"}


class BrokenOff(Exception):
    pass


class _BadGateway(Exception):
    pass


def _fail(failure: Failure | None) -> None:
    if failure is Failure.BUSY:
        raise _Refusal(429, f"Too Many Requests: retry after {RETRY_AFTER_S}", retry_after=RETRY_AFTER_S)
    if failure is Failure.REFUSE:
        raise _Refusal(403, "Forbidden: bot was blocked by the user")
    if failure is Failure.ERROR_AFTER:
        raise _Refusal(500, "Internal Server Error")
    if failure is Failure.ERROR:
        raise _BadGateway
    raise BrokenOff


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    return {name: message[name] for name in ("message_id", "date", "chat")}


def _keyboard(form: dict[str, Any]) -> list[list[dict[str, Any]]]:
    rows: list[list[dict[str, Any]]] = json.loads(form.get("reply_markup", "{}")).get("inline_keyboard", [])
    assert all(len(key.get("callback_data", "").encode()) <= 64 for row in rows for key in row)
    return rows


def _shown(form: dict[str, Any], name: str, limit: int) -> str:
    """The text as people see it, once it is found correct."""
    text = str(form[name])
    if form.get("parse_mode") == "HTML":
        text = _parsed(text)
    if len(text.encode("utf-16-le")) // 2 > limit:
        raise _Refusal(400, "Bad Request: message is too long")
    return text


def _parsed(text: str) -> str:
    parser = _Tags(convert_charrefs=False)
    parser.feed(text)
    parser.close()
    if parser.open or parser.is_wrong:
        raise _Refusal(400, "Bad Request: can't parse entities: unclosed or unknown tag")
    return "".join(parser.text)


class _Tags(HTMLParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.open: list[str] = []
        self.text: list[str] = []
        self.is_wrong = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.is_wrong |= tag not in _TAGS
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.is_wrong |= not self.open or self.open.pop() != tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_entityref(self, name: str) -> None:
        self.text.append(unescape(f"&{name};"))

    def handle_charref(self, name: str) -> None:
        self.text.append(unescape(f"&#{name};"))


async def _by_hand(port: int) -> None:
    service = TelegramService()
    async with service.serve(port):
        print(f"token {TOKEN}, api_url {service.url}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            service.say(line.strip())
            await asyncio.sleep(3)
            print(service.read(), flush=True)


if __name__ == "__main__":
    asyncio.run(_by_hand(int(sys.argv[1])))
