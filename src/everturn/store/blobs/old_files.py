"""Uploads to PostgreSQL what servers kept in their data folders before there were blobs."""

from __future__ import annotations

import logging
from pathlib import Path

from everturn.store.blobs.blobs import StoredBlobs
from everturn.store.blobs.packs import in_thread
from everturn.store.scripts.queries.files import FILES_WITHOUT_BYTES
from everturn.store.scripts.script import Database, Script, Tx

FOLDER = "files"
UPLOADED = "files.uploaded"
_REPORT_BYTES = 100_000_000
_log = logging.getLogger("everturn.store.blobs")


async def upload_old_files(db: Database, blobs: StoredBlobs, data_dir: Path) -> None:
    """Store the files of the folder that rows name and that are not stored yet, then rename the folder.

    Repeating it is harmless: what was stored is skipped. The folder is kept for the user to delete.
    """
    folder = data_dir / FOLDER
    if not await in_thread(folder.is_dir):
        return
    wanted = await in_thread(_find_in, folder, await db.read(_without_bytes))
    total = sum(size for _, size in wanted)
    done = reported = 0
    if wanted:
        _log.info("uploading %d files (%.1f MB) of %s to the database", len(wanted), total / 1e6, folder)
    for path, size in wanted:
        blob = await blobs.put(path)
        if blob.sha256 != path.name:
            _log.warning("%s is damaged: it does not have the hash that it is named by", path)
        done += size
        if done - reported >= _REPORT_BYTES:
            reported = done
            _log.info("uploaded %.1f of %.1f MB", done / 1e6, total / 1e6)
    await in_thread(_set_aside, folder)


def _find_in(folder: Path, hashes: list[str]) -> list[tuple[Path, int]]:
    paths = [folder / sha256[:2] / sha256 for sha256 in hashes]
    return [(path, path.stat().st_size) for path in paths if path.is_file()]


def _set_aside(folder: Path) -> None:
    target = folder.with_name(UPLOADED)
    try:
        folder.rename(target)
    except OSError as error:
        # Another process was faster, or one of that name is there already. Nothing depends on the name.
        _log.info("%s keeps its name: %s", folder, error.strerror)
        return
    _log.info("every file of %s is in the database; %s can be deleted", folder, target)


def _without_bytes(tx: Tx) -> Script[list[str]]:
    return (yield from FILES_WITHOUT_BYTES.all())
