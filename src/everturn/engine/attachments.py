"""Reads the attached files for a model, up to a limit."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from everturn.domain.errors import FileMissing, Gone, NotFound
from everturn.domain.media import document_kind
from everturn.domain.messages import Attachment, Message, Result
from everturn.domain.model import Abilities
from everturn.domain.pictures import SEEN_BYTES_MAX, SEEN_MAX, SEEN_TYPES, pictures_of
from everturn.domain.store_values import File
from everturn.engine.context import is_text
from everturn.engine.services import TurnServices

_log = logging.getLogger("everturn.engine")


class Attachments:
    """Reads each file once per turn."""

    def __init__(self, services: TurnServices, owner: str, session_id: str) -> None:
        self._services = services
        self._owner = owner
        self._session_id = session_id
        self._can_search = False
        self._read: dict[str, bytes | None] = {}

    async def load(
        self, history: Sequence[Message], abilities: Abilities, *, can_search: bool
    ) -> dict[str, bytes]:
        """Contents by file id, newest first until the bound is reached. ``can_search``: the model has
        the tools for long documents."""
        if can_search != self._can_search:  # another model answers than before
            self._read.clear()
            self._can_search = can_search
        left = self._services.settings.attachment_bytes_max
        loaded: dict[str, bytes] = {}
        for part in _find_attachments(history):
            is_image = part.media_type.startswith("image/")
            if not (is_text(part.media_type, part.name) or (is_image and abilities.images)):
                continue
            content = await self._content(part)
            if content is not None and len(content) <= left:
                loaded[part.file_id] = content
                left -= len(content)
        if abilities.images:
            await self._load_pictures(history, loaded, left)
        return loaded

    async def _load_pictures(self, history: Sequence[Message], loaded: dict[str, bytes], left: int) -> None:
        """Add the newest pictures that tools returned, up to the bounds."""
        for part in _find_pictures(history)[:SEEN_MAX]:
            content = await self._content(part)
            if content is not None and len(content) <= left:
                loaded[part.file_id] = content
                left -= len(content)

    async def _content(self, part: Attachment) -> bytes | None:
        if part.file_id not in self._read:
            self._read[part.file_id] = await self._read_file(part)
        return self._read[part.file_id]

    async def _read_file(self, part: Attachment) -> bytes | None:
        """Raises FileUnreadable if it cannot be read now: an answer without the file would be a wrong one."""
        try:
            return await self._read_from(await self._services.store.files.get(self._owner, part.file_id))
        except (NotFound, Gone):
            return None
        except FileMissing as error:
            # Missing or damaged: show the model the file's name. Otherwise no later turn of the session could
            # be answered.
            _log.warning("the attachment %s cannot be read: %s", part.file_id, error.message)
            return None

    async def _read_from(self, file: File) -> bytes | None:
        settings = self._services.settings
        is_words = is_text(file.media_type, file.name)
        if document_kind(file.name, file.media_type) or (
            is_words and file.size > settings.attachment_text_chars_max
        ):
            text = await self._services.toolbox.show_document(
                self._owner,
                self._session_id,
                file,
                settings.attachment_text_chars_max,
                can_search=self._can_search,
            )
            return text.encode()
        if not is_words and file.size > settings.attachment_bytes_max:
            return None
        return b"".join([piece async for piece in self._services.store.files.read(file)])


def _find_pictures(history: Sequence[Message]) -> list[Attachment]:
    found = [
        Attachment(picture.id, picture.name, picture.media, picture.size)
        for message in history
        for part in message.parts
        if type(part) is Result
        for picture in pictures_of(part)
        if picture.media in SEEN_TYPES and picture.size <= SEEN_BYTES_MAX
    ]
    return list(reversed(found))


def _find_attachments(history: Sequence[Message]) -> list[Attachment]:
    found = [part for message in history for part in message.parts if type(part) is Attachment]
    return list(reversed(found))
