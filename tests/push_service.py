"""A push service and the browser behind it: takes encrypted messages, decrypts them (RFC 8291), keeps topics."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from everturn.delivery.notifications.web_push import Subscription, from_base64, to_base64
from everturn.domain.notifications import BrowserAddress


class PushService:
    """``statuses``: the answers to come; then 201. 0: take the message and break off. -1: hang."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._auth = bytes(range(16))
        self.statuses: list[int] = []
        self.attempts: list[dict[str, str]] = []  # headers
        self.messages: list[dict[str, Any]] = []  # that arrived, decrypted
        self.shown: dict[str, dict[str, Any]] = {}  # by tag, as a browser shows them
        self.waiting: dict[str, dict[str, Any]] = {}  # by topic, while the browser is away
        self.is_away = False
        self.end = threading.Event()
        self.port = 0

    @property
    def private(self) -> str:
        return f"127.0.0.1:{self.port}"

    def browser(self, key: str, name: str = "one") -> BrowserAddress:
        """What a browser sends that has subscribed with this key."""
        subscription = self.subscription(key, name)
        return BrowserAddress(subscription.endpoint, subscription.p256dh, subscription.auth, key)

    def subscription(self, key: str, name: str = "one") -> Subscription:
        public = self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        endpoint = f"http://{self.private}/send/{name}"
        return Subscription(endpoint, to_base64(public), to_base64(self._auth), key)

    def come_back(self) -> None:
        """The browser is there again: the service delivers what it kept."""
        self.is_away = False
        for message in self.waiting.values():
            self._deliver(message)
        self.waiting.clear()

    @contextmanager
    def serve(self, port: int = 0) -> Iterator[None]:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler_of(self))
        server.daemon_threads = True
        self.port = int(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.end.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        self.attempts.append(headers)
        status = self.statuses.pop(0) if self.statuses else 201
        if status not in (0, 201):
            return status
        check_vapid(headers["authorization"], f"http://{self.private}")
        message = json.loads(self.decrypt(body))
        if self.is_away:
            self.waiting[headers["topic"]] = message
        else:
            self._deliver(message)
        return status

    def _deliver(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self.shown[message["tag"]] = message

    def decrypt(self, body: bytes) -> bytes:
        salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
        theirs, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(body) <= size == 4096
        ours = self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs)
        secret = self._private.exchange(ec.ECDH(), point)
        seed = _hkdf(self._auth, secret, b"WebPush: info\0" + ours + theirs, 32)
        key = _hkdf(salt, seed, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _hkdf(salt, seed, b"Content-Encoding: nonce\0", 12)
        padded = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert padded.endswith(b"\x02")
        return padded[:-1]


def check_vapid(header: str, audience: str) -> dict[str, Any]:
    """The claims, if the signature is that of the key that comes with them (RFC 8292)."""
    scheme, _, rest = header.partition(" ")
    assert scheme == "vapid"
    given = dict(pair.strip().split("=", 1) for pair in rest.split(","))
    signed, _, signature = given["t"].rpartition(".")
    raw = from_base64(signature)
    der = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), from_base64(given["k"]))
    point.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
    claims: dict[str, Any] = msgspec.json.decode(from_base64(signed.split(".")[1]))
    assert claims["aud"] == audience
    assert claims["sub"].startswith(("mailto:", "https://"))
    return claims


def _hkdf(salt: bytes, secret: bytes, info: bytes, size: int) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=size, salt=salt, info=info).derive(secret)


def _handler_of(service: PushService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is http.server's
            body = self.rfile.read(int(self.headers["content-length"]))
            status = service.take({name.lower(): value for name, value in self.headers.items()}, body)
            if status == -1:
                service.end.wait()
            if status <= 0:
                self.close_connection = True
                return
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "7")
            if status == 302:
                self.send_header("Location", f"http://{service.private}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    return Handler
