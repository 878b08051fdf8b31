"""Secrets in ``secrets.toml`` (0600) in the data folder, known to one machine."""

from __future__ import annotations

import asyncio
import os
import threading
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from everturn.domain.errors import StoreRefused
from everturn.domain.secrets import Secret, SecretsPlace, SecretsState
from everturn.store.files.disk import Disk, write_atomically

FILE = "secrets.toml"
_ALWAYS = ("keys", "servers")  # tables that are written also when empty

Tables = dict[str, dict[str, str]]


class SecretsFile:
    """A table of the file for each kind of secret.

    The file is read at each use: it is small, another process may have changed it, and a secret that is
    not kept in memory cannot leak from there.
    """

    def __init__(self, folder: Path, *, notice: str = "", disk: Disk | None = None) -> None:
        self.path = folder / FILE
        self.state = SecretsState(SecretsPlace.FILE, notice)
        self._disk = disk or Disk()
        self._lock = threading.Lock()

    def get(self, name: str) -> Secret | None:
        kind, _, own = name.partition("/")
        text = self.read().get(kind, {}).get(own)
        return Secret(text) if text else None

    def find(self, kind: str) -> dict[str, Secret]:
        return {own: Secret(text) for own, text in self.read().get(kind, {}).items()}

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(f"{kind}/{own}" for kind, table in self.read().items() for own in table))

    async def change(self, changes: Mapping[str, str | None]) -> None:
        await asyncio.to_thread(self._change, changes)

    async def refresh(self) -> None:
        """Does nothing: every use reads the file."""

    def read(self) -> Tables:
        """The file's tables. Raises StoreRefused; its message never contains a secret."""
        try:
            with self.path.open("rb") as file:
                if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                    # Tightened rather than refused: the harm is done, but it need not go on. A file that
                    # cannot be changed (mounted, another owner's) is its owner's decision.
                    with suppress(OSError):
                        os.fchmod(file.fileno(), 0o600)
                found = tomllib.load(file)
        except FileNotFoundError:
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            # Chained to nothing: the parser's message may quote the line, and with it a key.
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            raise StoreRefused(
                f"{FILE} in the data folder cannot be read{where}. No key was used.",
                hint=f'Each line of its [keys] table is: provider = "key". Repair or delete {FILE}.',
            ) from None
        return {
            str(kind): {str(own): str(text) for own, text in table.items()}
            for kind, table in found.items()
            if isinstance(table, dict)
        }

    def _change(self, changes: Mapping[str, str | None]) -> None:
        with self._lock:
            tables = self.read()
            for name, text in changes.items():
                kind, _, own = name.partition("/")
                if text is None:
                    tables.get(kind, {}).pop(own, None)
                else:
                    tables.setdefault(kind, {})[own] = text
            self._write(tables)

    def _write(self, tables: Tables) -> None:
        lines = ["# Keys of model providers. Readable by its owner only."]
        for kind in sorted({*tables, *_ALWAYS}):
            lines += [f"[{kind}]"]
            lines += [f"{_quote(own)} = {_quote(text)}" for own, text in sorted(tables.get(kind, {}).items())]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._disk, self.path, ("\n".join(lines) + "\n").encode())


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
