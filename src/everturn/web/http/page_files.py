"""The page's files: names with a hash are cached for ever, the rest is revalidated each time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path

import anyio
import anyio.to_thread

from everturn.web.http.asgi import Receive, Scope, Send
from everturn.web.http.guard import PAGE_POLICY
from everturn.web.http.routing import Raw, Streaming

_HASHED = re.compile(r"^/assets/[^/]+-[A-Za-z0-9_-]{8,}\.[a-z0-9.]+$")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_REFUSED = re.compile(r"q=0(\.0*)?")
_CHUNK_BYTES = 262_144
_SEND_TIMEOUT_S = 60.0  # for a piece of that size
_PATH_CHARS_MAX = 200  # no file of ours has a longer one, and the system refuses names beyond 255
_MISSING = (
    b"<!doctype html><meta charset=utf-8><title>Everturn</title><p>Everturn is running, but its page is not "
    b"built.</p><p>In a clone, run <code>make page</code>, then reload. The API works all the same: see "
    b"<a href=docs>docs</a>.</p>"
)


class PageFiles:
    """Serves one folder, and ``index.html`` for the page's own addresses (``/s/…``)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    async def find(self, path: str, headers: Mapping[str, str]) -> Streaming | Raw | None:
        """The answer; None if there is no file at this path."""
        return await anyio.to_thread.run_sync(self._find, path, headers)

    def _find(self, path: str, headers: Mapping[str, str]) -> Streaming | Raw | None:
        if not (self._folder / "index.html").is_file():
            return Raw(_MISSING, _TYPES[".html"], 200, _headers(PAGE_POLICY)) if path == "/" else None
        wanted = self._inside(path)
        if wanted is None or not wanted.is_file():
            if "." in path.rpartition("/")[2] or not _is_page_address(path):
                return None
            wanted, path = self._folder / "index.html", "/index.html"
        served, encoding = _choose_encoding(wanted, headers.get("accept-encoding", ""))
        stat = served.stat()
        tag = f'"{stat.st_size:x}-{stat.st_mtime_ns:x}"'.encode()
        caching = b"public, max-age=31536000, immutable" if _HASHED.match(path) else b"no-cache"
        extra = [(b"etag", tag), (b"cache-control", caching), (b"vary", b"accept-encoding")]
        if encoding:
            extra.append((b"content-encoding", encoding.encode()))
        extra.append((b"last-modified", formatdate(stat.st_mtime, usegmt=True).encode()))
        media = _TYPES.get(wanted.suffix, "application/octet-stream")
        if headers.get("if-none-match", "").encode() == tag:
            return Raw(b"", media, 304, (*_headers(PAGE_POLICY), *extra))
        return FileAnswer(served, stat.st_size, media, (*_headers(PAGE_POLICY), *extra))

    def _inside(self, path: str) -> Path | None:
        """The file that a path names, if it is inside the folder once every link is followed."""
        if "\0" in path or "\\" in path or len(path) > _PATH_CHARS_MAX:
            return None
        wanted = (self._folder / path.lstrip("/")).resolve()
        return wanted if wanted.is_relative_to(self._folder) else None


class FileAnswer(Streaming):
    """A file, piece by piece, read in a thread."""

    def __init__(
        self,
        path: Path,
        size: int,
        media: str,
        headers: tuple[tuple[bytes, bytes], ...],
        *,
        send_timeout_s: float = _SEND_TIMEOUT_S,
    ) -> None:
        self._send_timeout_s = send_timeout_s
        self._path = path
        self._size = size
        self._media = media
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = [
            (b"content-type", self._media.encode()),
            (b"content-length", str(self._size).encode()),
            *self._headers,
        ]
        # Open before the head goes out: a file that is gone is an error, not half an answer.
        file = await anyio.open_file(self._path, "rb")
        async with file:
            await send({"type": "http.response.start", "status": 200, "headers": head})
            left = 0 if scope["method"] == "HEAD" else self._size
            while left > 0:
                piece = await file.read(min(_CHUNK_BYTES, left))
                if not piece:
                    break
                left -= len(piece)
                with anyio.move_on_after(self._send_timeout_s) as taking:
                    await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
                if taking.cancelled_caught:
                    # A client that reads nothing would hold a file and a connection indefinitely.
                    abort = scope.get("extensions", {}).get("everturn.abort")
                    if abort is not None:
                        abort()
                    return
            if self._size == 0 or scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})


def _headers(policy: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"content-security-policy", policy.encode()),)


def _is_page_address(path: str) -> bool:
    return not path.startswith(("/api/", "/v1/", "/assets/"))


def _choose_encoding(path: Path, accepted: str) -> tuple[Path, str]:
    items = (item.lower().replace(" ", "").partition(";") for item in accepted.split(","))
    offered = {name for name, _, weight in items if not _REFUSED.fullmatch(weight)}
    for encoding, suffix in _ENCODINGS:
        packed = path.with_name(path.name + suffix)
        if encoding in offered and packed.is_file():
            return packed, encoding
    return path, ""
