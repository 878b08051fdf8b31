"""Files on their way to a platform."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio

from everturn.domain.delivery import OutgoingFile
from everturn.domain.store import Files


@asynccontextmanager
async def stored_file(files: Files, owner: str, file_id: str) -> AsyncIterator[OutgoingFile]:
    """Yield the path of a stored file while it is sent. Raises NotFound, FileMissing."""
    file = await files.get(owner, file_id)
    with tempfile.TemporaryDirectory(prefix="everturn-send-") as folder:
        path = Path(folder, "file")
        async with await anyio.open_file(path, "wb") as out, aclosing(files.read(file)) as pieces:
            async for piece in pieces:
                await out.write(piece)
        yield OutgoingFile(path, file.name, file.media_type)
