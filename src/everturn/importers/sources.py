"""Opens the export of a system by its name, and tells by its content which system a file comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final

from everturn.domain.errors import BadImport
from everturn.importers import chatgpt, claude, hermes, librechat, openwebui, texts
from everturn.importers.export_file import ExportFile, Reader
from everturn.importers.values import Conversation, History, Unreadable

_READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        chatgpt.SOURCE: chatgpt.READER,
        claude.SOURCE: claude.READER,
        openwebui.SOURCE: openwebui.READER,
        librechat.SOURCE: librechat.READER,
    }
)
SOURCES: Final = (hermes.SOURCE, *_READERS)
# A conversation of each has these members.
_MARKS: Final = (
    (chatgpt.SOURCE, ("mapping",)),
    (claude.SOURCE, ("chat_messages",)),
    (librechat.SOURCE, ("conversationId", "messages")),
    (openwebui.SOURCE, ("chat",)),
)


def open_history(source: str, path: Path, name: str = "") -> History:
    """Raises BadImport, also for an unknown source."""
    if source == hermes.SOURCE:
        return hermes.HermesFolder(path)
    if source not in _READERS:
        raise BadImport(f"{source!r} is not a known system.", hint=f"Known are {', '.join(SOURCES)}.")
    return _FileHistory(ExportFile(path, name), _READERS[source])


def recognize(path: Path, name: str = "") -> str:
    """The system that a file comes from, by its first conversation. Raises BadImport."""
    file = ExportFile(path, name)
    try:
        for begin in ("conversation", "chat"):
            for raw in _first_of(file, begin):
                found = texts.decode(raw)
                members = found.keys() if isinstance(found, dict) else ()
                for source, marks in _MARKS:
                    if all(mark in members for mark in marks):
                        return source
    finally:
        file.close()
    raise BadImport(
        f"{name or path.name} is not an export that can be recognised. Nothing was imported.",
        hint="Importable are sessions that Everturn exported, and exports of ChatGPT, Claude, Open WebUI "
        "and LibreChat.",
    )


def _first_of(file: ExportFile, name: str) -> Iterator[bytes]:
    try:
        yield from (bytes(raw) for raw in islice(file.items(name), 1))
    except BadImport:
        return  # the archive has no such file; another name is tried


class _FileHistory:
    def __init__(self, file: ExportFile, reader: Reader) -> None:
        self._file = file
        self._reader = reader
        try:
            self._items = list(self._file.items(reader.file_name))
        except BaseException:
            self._file.close()
            raise

    @property
    def total(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Conversation | Unreadable]:
        for raw in self._items:
            yield self._file.read(raw, self._reader)

    def close(self) -> None:
        self._file.close()
