"""Reads the attached files for a model, up to a limit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from everturn.domain.errors import FileUnreadable, Gone, NotFound
from everturn.domain.messages import Attachment, Message
from everturn.domain.model import Abilities
from everturn.engine.context import PDF, is_text
from everturn.engine.services import TurnServices

_log = logging.getLogger("everturn.engine")


class Attachments:
    """Reads each file once per turn."""

    def __init__(self, services: TurnServices, owner: str) -> None:
        self._services = services
        self._owner = owner
        self._read: dict[str, bytes | None] = {}

    async def load(self, history: Sequence[Message], abilities: Abilities) -> dict[str, bytes]:
        """Contents by file id, newest first until the bound is reached."""
        left = self._services.settings.attachment_bytes_max
        loaded: dict[str, bytes] = {}
        for part in _find_attachments(history):
            is_image = part.media_type.startswith("image/")
            if not (is_text(part.media_type) or (is_image and abilities.images)):
                continue
            content = await self._content(part)
            if content is not None and len(content) <= left:
                loaded[part.file_id] = content
                left -= len(content)
        return loaded

    async def _content(self, part: Attachment) -> bytes | None:
        if part.file_id not in self._read:
            self._read[part.file_id] = await self._read_file(part)
        return self._read[part.file_id]

    async def _read_file(self, part: Attachment) -> bytes | None:
        try:
            return await self._read_from(
                await self._services.store.files.path(self._owner, part.file_id), part
            )
        except (NotFound, Gone):
            return None
        except (FileNotFoundError, PermissionError) as error:
            # Missing or unreadable: show the model the file's name. Otherwise no later turn of the session
            # could be answered.
            _log.warning("the attachment %s cannot be read: %s", part.file_id, error)
            return None
        except OSError as error:
            # Too many open files, a disk that fails: an answer without the file would be a wrong one.
            why = error.strerror or error
            raise FileUnreadable(f"The attachment {part.name[:100]!r} cannot be read: {why}.") from error

    async def _read_from(self, path: Path, part: Attachment) -> bytes | None:
        if part.media_type == PDF:
            limit = self._services.settings.attachment_text_chars_max
            return (await anyio.to_thread.run_sync(pdf_text, path, limit)).encode()
        if is_text(part.media_type):
            async with await anyio.open_file(path, "rb") as file:
                return await file.read(self._services.settings.attachment_text_chars_max)
        if part.size > self._services.settings.attachment_bytes_max:
            return None
        return await anyio.Path(path).read_bytes()


def _find_attachments(history: Sequence[Message]) -> list[Attachment]:
    found = [part for message in history for part in message.parts if type(part) is Attachment]
    return list(reversed(found))


def pdf_text(path: Path, chars_max: int) -> str:
    """The text of a PDF, page by page, up to a bound; if it cannot be read, the reason, for the model."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        return "[The words of this PDF cannot be read here: the extra 'pdf' is not installed.]"
    pages: list[str] = []
    left = chars_max
    try:
        for page in PdfReader(path).pages:
            words = page.extract_text()[:left]
            pages.append(words)
            left -= len(words)
            if left <= 0:
                pages.append("[The rest is left out: the document is longer than what is read.]")
                break
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError) as error:
        # Broken PDFs are common. The model gets the error text and the turn continues.
        _log.info("a PDF could not be read: %s", error)
        pages.append(f"[This PDF cannot be read further: {error}]")
    return "\n\n".join(pages)
