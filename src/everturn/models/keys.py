"""Keys of providers: from the environment, else from ``secrets.toml`` (0600) in the data folder.

The same file holds the addresses of servers that were connected in the settings, so that an address and its
key are stored and deleted together.

A key leaves this module only as a ``Secret``; its text is read in one place, where the headers of a request
are made. ``redact`` removes keys from any text that may be shown, stored or logged.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from everturn.domain.errors import Invalid, StoreRefused

REDACTED = "[key]"
_FILE = "secrets.toml"
# What keys of the known providers look like; also catches the half-masked ones that errors echo.
_KEY_SHAPE = re.compile(r"\b(?:(?:sk|pk|rk|gsk|xai|hf|key)[-_]|AIza)[-_*.A-Za-z0-9]{6,}")
_PROVIDER_SHAPE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TABLES = ("keys", "servers")
_SHORTEST_KEY = 6  # a shorter one would redact ordinary words


class Secret:
    """A key that is hidden in ``repr``, f-strings and tracebacks."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class KeyFound(msgspec.Struct, frozen=True):
    secret: Secret
    source: str  # environment | file


class _Secrets(msgspec.Struct):
    """What the file holds, by provider."""

    keys: dict[str, str] = {}
    servers: dict[str, str] = {}


class Keys:
    """Reads and writes keys. The environment wins, as it does for every other setting.

    The file is read at each use: it is small, another process may have changed it, and a key that is
    not kept in memory cannot leak from there.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._path = folder / _FILE
        self._environ = environ

    def find(self, provider: str, variables: Iterable[str] = ()) -> KeyFound | None:
        for variable in variables:
            value = self._environ.get(variable, "").strip()
            if value:
                return KeyFound(Secret(value), "environment")
        stored = self._read().keys.get(provider)
        return KeyFound(Secret(stored), "file") if stored else None

    def stored(self) -> tuple[str, ...]:
        """The providers that have a key in the file."""
        return tuple(sorted(self._read().keys))

    def servers(self) -> dict[str, str]:
        """The addresses of connected servers, by provider."""
        return self._read().servers

    def put(self, provider: str, key: str) -> None:
        """Store a key durably. Raises Invalid; its message never contains the key."""
        secrets = self._read()
        secrets.keys[_checked_name(provider)] = _checked_key(provider, key)
        self._write(secrets)

    def put_server(self, provider: str, base_url: str, key: str | None) -> None:
        """Store a server's address with its key, durably. Raises Invalid.

        A key that was stored for another address is deleted: it must not be sent to this one.
        """
        secrets = self._read()
        if key is not None:
            secrets.keys[_checked_name(provider)] = _checked_key(provider, key)
        elif secrets.servers.get(provider) != base_url:
            secrets.keys.pop(provider, None)
        secrets.servers[_checked_name(provider)] = base_url
        self._write(secrets)

    def delete(self, provider: str) -> bool:
        """Delete a stored key and the server's address. False if there was neither."""
        secrets = self._read()
        found = [table.pop(provider, None) for table in (secrets.keys, secrets.servers)]
        if found == [None, None]:
            return False
        self._write(secrets)
        return True

    def redact(self, text: str) -> str:
        """The text without stored keys and anything that looks like a key."""
        return redact(text, (Secret(key) for key in self._read().keys.values()))

    def _read(self) -> _Secrets:
        try:
            with self._path.open("rb") as file:
                if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                    # Tightened rather than refused: the harm is done, but it need not go on. A file that
                    # cannot be changed (mounted, another owner's) is its owner's decision.
                    with suppress(OSError):
                        os.fchmod(file.fileno(), 0o600)
                found = tomllib.load(file)
        except FileNotFoundError:
            return _Secrets()
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            # Chained to nothing: the parser's message may quote the line, and with it a key.
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            raise StoreRefused(
                f"{_FILE} in the data folder cannot be read{where}. No key was used.",
                hint=f'Each line of its [keys] table is: provider = "key". Repair or delete {_FILE}.',
            ) from None
        return _Secrets(
            *({str(key): str(value) for key, value in found.get(name, {}).items()} for name in _TABLES)
        )

    def _write(self, secrets: _Secrets) -> None:
        lines = ["# Keys of model providers. Readable by its owner only."]
        for table in _TABLES:
            lines += [f"[{table}]"]
            lines += [
                f"{_quoted(k)} = {_quoted(value)}" for k, value in sorted(getattr(secrets, table).items())
            ]
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._path.with_name(f"{_FILE}.{os.getpid()}.partial")
        partial.unlink(missing_ok=True)
        # The mode is given at creation: between creating and a later chmod anyone could open it.
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)


def _checked_name(provider: str) -> str:
    if not _PROVIDER_SHAPE.fullmatch(provider):
        raise Invalid(f"{provider[:80]!r} is not the name of a provider.")
    return provider


def _checked_key(provider: str, key: str) -> str:
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


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
