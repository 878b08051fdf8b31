"""The other side of a webhook: a program that posts signed messages and takes signed answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from everturn.delivery.signatures import ID, sign, verify
from everturn.domain.clock import Clock
from everturn.domain.json_types import JsonObject
from everturn.testing.platform_conformance import RETRY_AFTER_S


class _Failure(Enum):
    BUSY = auto()
    REFUSE = auto()
    BREAK_OFF = auto()


class WebhookService:
    """Checks every signature, and recognises repeats by their id, as the specification asks."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self.key = key
        self.clock = clock
        self.waiting: list[tuple[dict[str, str], bytes]] = []  # signed messages that are not acknowledged
        self.answers: dict[str, JsonObject] = {}  # by id
        self.attempts = 0
        self.port = 0
        self._failures: list[_Failure] = []
        self._said = 0

    # --- people --------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self._said += 1
        body = msgspec.json.encode({"text": text, "chat": "deploys", "sender": "ci"})
        self.waiting.append((sign(self.key, f"msg_{self._said}", self.clock.now_ms() // 1000, body), body))

    def read(self) -> list[str]:
        return [answer["text"] for answer in self.answers.values()]

    def be_busy(self) -> None:
        self._failures.append(_Failure.BUSY)

    def refuse(self) -> None:
        self._failures.append(_Failure.REFUSE)

    def break_off(self) -> None:
        self._failures.append(_Failure.BREAK_OFF)

    # --- the server ----------------------------------------------------------------------------------

    @contextmanager
    def serve(self) -> Iterator[None]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        server.daemon_threads = True
        self.port = int(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """The status of the answer; 0: none, the connection breaks."""
        self.attempts += 1
        failure = self._failures.pop(0) if self._failures else None
        if failure is _Failure.BUSY:
            return 429
        if failure is _Failure.REFUSE:
            return 410
        verify([self.key], headers, body, self.clock.now_ms() / 1000)
        self.answers.setdefault(headers[ID], msgspec.json.decode(body))
        return 0 if failure is _Failure.BREAK_OFF else 200


def _handler_of(service: WebhookService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is http.server's
            body = self.rfile.read(int(self.headers["content-length"]))
            status = service.take({name.lower(): value for name, value in self.headers.items()}, body)
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", str(RETRY_AFTER_S))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    return Handler
