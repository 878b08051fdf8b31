"""A web site on this machine, with the pages of one task."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath

HOST = "127.0.0.1"
_TYPES = {
    ".json": "application/json",
    ".csv": "text/csv",
    ".txt": "text/plain",
    "": "text/html",
    ".html": "text/html",
}


class Site:
    """One address for all tasks; ``pages`` of the one that runs, by path."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pages: Mapping[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


@contextmanager
def serve_site() -> Iterator[Site]:
    site = Site(0)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            page = site.pages.get(path)
            body = (f"Nothing is at {path}.\n" if page is None else page).encode()
            kind = "text/plain" if page is None else _TYPES.get(PurePosixPath(path).suffix, "text/plain")
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            """Say nothing: the table is on this terminal."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        site.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, name="site", daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
