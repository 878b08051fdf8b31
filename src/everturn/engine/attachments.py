"""Reads the attached files for a model, up to a limit."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import anyio
import anyio.to_thread

from everturn.domain.errors import FileMissing, Gone, NotFound
from everturn.domain.messages import Attachment, Message
from everturn.domain.model import Abilities
from everturn.domain.store_values import File
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
        """Raises FileUnreadable if it cannot be read now: an answer without the file would be a wrong one."""
        try:
            return await self._read_from(
                await self._services.store.files.get(self._owner, part.file_id), part.media_type
            )
        except (NotFound, Gone):
            return None
        except FileMissing as error:
            # Missing or damaged: show the model the file's name. Otherwise no later turn of the session could
            # be answered.
            _log.warning("the attachment %s cannot be read: %s", part.file_id, error.message)
            return None

    async def _read_from(self, file: File, media_type: str) -> bytes | None:
        text_max = self._services.settings.attachment_text_chars_max
        if media_type == PDF:
            with tempfile.TemporaryFile() as copy:  # a PDF is read from its end
                async for piece in self._services.store.files.read(file):
                    await anyio.to_thread.run_sync(copy.write, piece)
                return (await anyio.to_thread.run_sync(pdf_text, copy, text_max)).encode()
        if not is_text(media_type) and file.size > self._services.settings.attachment_bytes_max:
            return None
        end = text_max if is_text(media_type) else None
        return b"".join([piece async for piece in self._services.store.files.read(file, 0, end)])


def _find_attachments(history: Sequence[Message]) -> list[Attachment]:
    found = [part for message in history for part in message.parts if type(part) is Attachment]
    return list(reversed(found))


def pdf_text(pdf: Path | IO[bytes], chars_max: int) -> str:
    """The text of a PDF, page by page, up to a bound; if it cannot be read, the reason, for the model."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        return "[The words of this PDF cannot be read here: the extra 'pdf' is not installed.]"
    pages: list[str] = []
    left = chars_max
    try:
        for page in PdfReader(pdf).pages:
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
