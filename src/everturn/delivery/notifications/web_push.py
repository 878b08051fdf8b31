"""Web Push: messages encrypted for one browser (RFC 8291), sent by a known server (VAPID, RFC 8292).

``cryptography`` is an extra, imported when the first key is needed.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from typing import TYPE_CHECKING, Final

import httpx2
import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.extras import install_command

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

MESSAGE_BYTES_MAX: Final = 3_000  # push services take 4096 bytes, with the head of the encryption
MISSING: Final = f"Web Push needs the extra 'push': {install_command('push')}"
_RECORD_BYTES: Final = 4096
_JWT_LIFE_S: Final = 12 * 3600  # at most 24 hours
_PAD_TO: Final = 512  # so that the length says little about the text
_TOPIC_CHARS_MAX: Final = 32


class VapidKey:
    """The key by which push services know this server."""

    def __init__(self, private: EllipticCurvePrivateKey) -> None:
        self._private = private
        self.public = to_base64(_raw(private.public_key()))

    @classmethod
    def generate(cls) -> VapidKey:
        from cryptography.hazmat.primitives.asymmetric import ec

        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def read(cls, text: str) -> VapidKey:
        from cryptography.hazmat.primitives.asymmetric import ec

        return cls(ec.derive_private_key(int.from_bytes(from_base64(text), "big"), ec.SECP256R1()))

    def text(self) -> str:
        """The key as a text, for the secrets."""
        return to_base64(self._private.private_numbers().private_value.to_bytes(32, "big"))

    def authorization(self, endpoint: httpx2.URL, now_s: int, contact: str) -> str:
        """The header that proves who sends. ``contact``: how the service reaches the operator of this
        server."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        audience = f"{endpoint.scheme}://{endpoint.netloc.decode('ascii')}"
        claims = {"aud": audience, "exp": now_s + _JWT_LIFE_S, "sub": contact}
        head = to_base64(json.dumps({"typ": "JWT", "alg": "ES256"}).encode())
        signed = f"{head}.{to_base64(json.dumps(claims).encode())}"
        r, s = utils.decode_dss_signature(self._private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        token = f"{signed}.{to_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
        return f"vapid t={token}, k={self.public}"


class Subscription(msgspec.Struct, frozen=True):
    """``vapid``: the public key that the browser subscribed with; only that server may send."""

    endpoint: str
    p256dh: str
    auth: str
    vapid: str


def check_subscription(subscription: Subscription) -> None:
    """Raises Invalid unless messages can be encrypted for it."""
    encrypt(b"", subscription)


def encrypt(message: bytes, subscription: Subscription) -> bytes:
    """Encrypt the message with ``aes128gcm`` for this browser alone. Raises Invalid."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        theirs = from_base64(subscription.p256dh)
        auth = from_base64(subscription.auth)
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs)
    except ValueError as error:
        raise Invalid("The subscription is not valid.", hint="Let the browser subscribe again.") from error
    if len(auth) != 16:
        raise Invalid("The subscription is not valid.", hint="Let the browser subscribe again.")
    ours = ec.generate_private_key(ec.SECP256R1())
    shared = ours.exchange(ec.ECDH(), point)
    public, salt = _raw(ours.public_key()), os.urandom(16)
    seed = _derive(auth, shared, b"WebPush: info\0" + theirs + public, 32)
    key = _derive(salt, seed, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, seed, b"Content-Encoding: nonce\0", 12)
    sealed = AESGCM(key).encrypt(nonce, _pad(message), None)
    return salt + _RECORD_BYTES.to_bytes(4, "big") + bytes([len(public)]) + public + sealed


def topic_of(tag: str) -> str:
    """A later message with this topic takes the place of one that the service still has."""
    import hashlib

    return to_base64(hashlib.sha256(tag.encode()).digest())[:_TOPIC_CHARS_MAX]


def to_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64(text: str) -> bytes:
    """Raises ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _pad(message: bytes) -> bytes:
    """Two marks the last record; zeros follow."""
    size = min(MESSAGE_BYTES_MAX + 1, -(-(len(message) + 1) // _PAD_TO) * _PAD_TO)
    return (message + b"\x02").ljust(size, b"\0")


def _derive(salt: bytes, secret: bytes, info: bytes, size: int) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=hashes.SHA256(), length=size, salt=salt, info=info).derive(secret)


def _raw(public: EllipticCurvePublicKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
