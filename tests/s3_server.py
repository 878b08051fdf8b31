"""A real S3-speaking server (moto's) for tests.

``S3Server`` runs this module as a child process, which ends when its standard input ends. The server can be away
and come back: the process stays, and what it holds in memory with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

import httpx2

from everturn.testing.ports import free_port

KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "not a secret",
    "AWS_REGION": "us-east-1",
}


class S3Server:
    def __init__(self) -> None:
        self._buckets = 0

    def __enter__(self) -> S3Server:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.s3_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        port = self._process.stdout.readline()
        assert port.strip().isdigit(), f"the server did not start: {port}"
        self.endpoint = f"http://127.0.0.1:{port.strip()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)

    def make_bucket(self) -> str:
        """The address of a new bucket."""
        self._buckets += 1
        name = f"bucket-{os.getpid()}-{self._buckets}"
        self._send("PUT", f"/{name}")
        return f"s3://{name}/files?endpoint={self.endpoint}"

    def names(self, address: str) -> set[str]:
        """All objects below the address."""
        bucket, prefix = _split(address)
        answer = self._send("GET", f"/{bucket}?prefix={prefix}/").decode()
        return {part.partition("</Key>")[0].removeprefix(f"{prefix}/") for part in answer.split("<Key>")[1:]}

    def get(self, address: str, name: str) -> bytes:
        return self._send("GET", "/{}/{}/{}".format(*_split(address), name))

    def put(self, address: str, name: str, content: bytes) -> None:
        self._send("PUT", "/{}/{}/{}".format(*_split(address), name), content)

    def delete(self, address: str, name: str) -> None:
        self._send("DELETE", "/{}/{}/{}".format(*_split(address), name))

    def _send(self, method: str, path: str, content: bytes = b"") -> bytes:
        # The server wants a signature and does not check it.
        headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
        answer = httpx2.request(method, self.endpoint + path, headers=headers, content=content, timeout=60)
        return answer.raise_for_status().content

    def go_away(self) -> None:
        self._order("stop")

    def come_back(self) -> None:
        self._order("start")

    def _order(self, what: str) -> None:
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline().strip() == what


def _split(address: str) -> tuple[str, str]:
    """Bucket and prefix."""
    bucket, _, prefix = address.partition("?")[0].removeprefix("s3://").partition("/")
    return bucket, prefix


def main() -> None:
    from moto.server import ThreadedMotoServer

    port = free_port()

    def start() -> ThreadedMotoServer:
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
        server.start()
        return server

    server = start()
    print(port, flush=True)
    for line in sys.stdin:
        what = line.strip()
        if what == "stop":
            server.stop()
        else:
            server = start()
        print(what, flush=True)
    server.stop()


if __name__ == "__main__":
    main()
