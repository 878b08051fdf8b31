"""Keys of providers: from the environment, else from the stored secrets.

The addresses of servers that were connected in the settings are secrets too, so that an address and its key
are stored and deleted together.

A key leaves this module only as a ``Secret``; its text is read in one place, where the headers of a request
are made. ``redact`` removes keys from any text that may be shown, stored or logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from everturn.domain.errors import Invalid
from everturn.domain.secrets import Secret, Secrets, SecretsState

REDACTED = "[key]"
ENVIRONMENT = "environment"
# What keys of the known providers look like; also catches the half-masked ones that errors echo.
_KEY_SHAPE = re.compile(r"\b(?:(?:sk|pk|rk|gsk|xai|hf|key)[-_]|AIza)[-_*.A-Za-z0-9]{5,}[-_*A-Za-z0-9]")
_PROVIDER_SHAPE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# Kinds of secrets.
_KEYS = "keys"
_SERVERS = "servers"
_SHORTEST_KEY = 6  # a shorter one would redact ordinary words


class KeyFound(msgspec.Struct, frozen=True):
    secret: Secret
    source: str  # environment | file | store


class Keys:
    """Reads and writes keys. The environment wins, as it does for every other setting."""

    def __init__(self, secrets: Secrets, environ: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._environ = environ

    @property
    def state(self) -> SecretsState:
        return self._secrets.state

    async def refresh(self) -> None:
        """Read what other servers have stored."""
        await self._secrets.refresh()

    def find(self, provider: str, variables: Iterable[str] = ()) -> KeyFound | None:
        """Raises SecretUnreadable if a key is stored and cannot be decrypted."""
        for variable in variables:
            value = self._environ.get(variable, "").strip()
            if value:
                return KeyFound(Secret(value), ENVIRONMENT)
        stored = self._secrets.get(f"{_KEYS}/{provider}")
        return KeyFound(stored, self._secrets.state.place) if stored else None

    def source(self, provider: str, variables: Iterable[str] = ()) -> str | None:
        """Where the provider's key is: in the environment, the file or the store; None if there is none."""
        if any(self._environ.get(variable, "").strip() for variable in variables):
            return ENVIRONMENT
        return self._secrets.state.place if f"{_KEYS}/{provider}" in self._secrets.names() else None

    def servers(self) -> dict[str, str]:
        """The addresses of connected servers, by provider."""
        return {name: address.reveal() for name, address in self._secrets.find(_SERVERS).items()}

    def server(self, provider: str) -> str | None:
        """The address of a connected server. Raises SecretUnreadable."""
        address = self._secrets.get(f"{_SERVERS}/{provider}")
        return address.reveal() if address else None

    async def put(self, provider: str, key: str) -> None:
        """Store a key durably. Raises Invalid; its message never contains the key."""
        await self._secrets.change({f"{_KEYS}/{_check_name(provider)}": _check_key(provider, key)})

    async def put_server(self, provider: str, base_url: str, key: str | None) -> None:
        """Store a server's address with its key, durably. Raises Invalid.

        A key that was stored for another address is deleted: it must not be sent to this one.
        """
        changes: dict[str, str | None] = {f"{_SERVERS}/{_check_name(provider)}": base_url}
        if key is not None:
            changes[f"{_KEYS}/{provider}"] = _check_key(provider, key)
        elif self.servers().get(provider) != base_url:
            changes[f"{_KEYS}/{provider}"] = None
        await self._secrets.change(changes)

    async def delete(self, provider: str) -> bool:
        """Delete a stored key and the server's address. False if there was neither."""
        names = [f"{kind}/{provider}" for kind in (_KEYS, _SERVERS)]
        found = [name for name in self._secrets.names() if name in names]
        if found:
            await self._secrets.change(dict.fromkeys(found))
        return bool(found)

    def redact(self, text: str) -> str:
        """The text without stored keys and anything that looks like a key."""
        return redact(text, self._secrets.find(_KEYS).values())


def _check_name(provider: str) -> str:
    if not _PROVIDER_SHAPE.fullmatch(provider):
        raise Invalid(f"{provider[:80]!r} is not the name of a provider.")
    return provider


def _check_key(provider: str, key: str) -> str:
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        raise Invalid(f"The key for {provider} is empty or has characters that no key has.")
    return key


def redact(text: str, secrets: Iterable[Secret] = ()) -> str:
    for secret in secrets:
        key = secret.reveal()
        if len(key) >= _SHORTEST_KEY:
            text = text.replace(key, REDACTED)
    return _KEY_SHAPE.sub(REDACTED, text)
