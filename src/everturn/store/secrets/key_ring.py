"""The keys that encrypt secrets in the store: read from the environment or a file, never made up or stored.

A secret is sealed with AES-256-GCM. Its name is authenticated with it, so that a sealed secret cannot be
passed off as another. A key is known by its id, a hash that says nothing about the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from everturn.domain.errors import Invalid, SecretUnreadable
from everturn.domain.extras import report_missing
from everturn.domain.secrets import Secret

if TYPE_CHECKING:  # imported where a key is used: its package belongs to the extra "postgresql"
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "EVERTURN_SECRET_KEY"
FILE_VARIABLE = "EVERTURN_SECRET_KEY_FILE"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_HOW = f"{_KEY_BYTES} random bytes in base64; 'everturn secrets new-key' prints such a key"


class Sealed(msgspec.Struct, frozen=True):
    """An encrypted secret."""

    name: str
    key_id: str
    nonce: bytes
    sealed: bytes


class KeyRing:
    """The keys of this process. The first one is the key to use; the others are accepted."""

    def __init__(
        self, keys: tuple[bytes, ...], random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._ciphers = {key_id(key): _cipher(key) for key in keys}
        self._random_bytes = random_bytes

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._ciphers)

    @property
    def first(self) -> str:
        return self.ids[0]

    def seal(self, key: str, name: str, text: str) -> Sealed:
        """Encrypt a secret with the key of this id."""
        nonce = self._random_bytes(_NONCE_BYTES)
        return Sealed(name, key, nonce, self._ciphers[key].encrypt(nonce, text.encode(), _bind(name)))

    def open(self, sealed: Sealed) -> Secret:
        """Decrypt a secret. Raises SecretUnreadable."""
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers.get(sealed.key_id)
        if cipher is None:
            raise SecretUnreadable(
                f"The secret {sealed.name} was encrypted with the key {sealed.key_id}, which this server "
                "does not have. It was not changed.",
                hint=f"Start this server with that key in {VARIABLE}. 'everturn secrets status' shows more.",
            )
        try:
            return Secret(cipher.decrypt(sealed.nonce, sealed.sealed, _bind(sealed.name)).decode())
        except (InvalidTag, ValueError) as error:
            # Chained to nothing: a decoder's message may quote what it was given.
            del error
        raise SecretUnreadable(
            f"The secret {sealed.name} is damaged in the store. The others are not affected.",
            hint="Store it again in the settings, or delete it there.",
        )


def read_key_ring(environ: Mapping[str, str], file: Path | None) -> KeyRing | None:
    """The keys in the environment, else in the file: one per line, or separated by commas. None: no key.

    Raises Invalid; its message never contains a key.
    """
    text, where = environ.get(VARIABLE, ""), VARIABLE
    if not text.strip() and file is not None:
        where = f"The secret key file {file}"
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise Invalid(
                f"{where} cannot be read: {error.strerror}. No secret was used.",
                hint=f"Correct {FILE_VARIABLE} or secret_key_file in config.toml, or the file's permissions.",
            ) from error
        if not text.strip():
            raise Invalid(f"{where} is empty.", hint=f"A key is {_HOW}.")
    words = [word for word in re.split(r"[,\s]+", text) if word]
    return KeyRing(tuple(_decode(word, where) for word in words)) if words else None


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def key_id(key: bytes) -> str:
    return hashlib.sha256(b"everturn secret key id\0" + key).hexdigest()[:12]


def _decode(word: str, where: str) -> bytes:
    try:
        key = base64.b64decode(
            word.replace("-", "+").replace("_", "/") + "=" * (-len(word) % 4), validate=True
        )
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise Invalid(f"{where} holds a text that is not a secret key.", hint=f"A key is {_HOW}.")
    return key


def _bind(name: str) -> bytes:
    return f"everturn secret\0{name}".encode()


def _cipher(key: bytes) -> AESGCM:
    with report_missing("Encrypting the secrets in the store", "postgresql"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(key)
