from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.testing.web_server import web_settings
from everturn.web import StartRefused
from everturn.web.server import address_of, bind

_SHOW_LIMIT = """
import resource
from everturn.web.server import raise_file_limit
raise_file_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_soft_file_limit_is_raised_to_what_the_hard_one_allows() -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))

    done = subprocess.run(
        [sys.executable, "-c", _SHOW_LIMIT], preexec_fn=lower, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1024"


def test_an_address_that_is_taken_is_refused_saying_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartRefused) as refused:
            bind(web_settings(tmp_path, port=taken.getsockname()[1]))
    assert "--port" in refused.value.hint


def test_an_address_that_is_not_ours_is_refused_saying_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StartRefused) as refused:
        bind(web_settings(tmp_path, host="203.0.113.5"))
    assert "--host" in refused.value.hint


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "localhost")])
def test_the_address_that_is_shown_can_be_opened(tmp_path: Path, host: str, shown: str) -> None:
    settings = web_settings(tmp_path, host=host, base_path="agent")
    with bind(settings) as listener:
        port = listener.getsockname()[1]
        assert address_of(listener, settings) == f"http://{shown}:{port}/agent/"


@pytest.mark.anyio
async def test_an_answer_is_not_held_back_until_its_head_is_acknowledged(tmp_path: Path) -> None:
    """What asyncio makes of a connection to our listener: Nagle's algorithm is off."""
    loop = asyncio.get_running_loop()
    is_off: asyncio.Future[int] = loop.create_future()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        is_off.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with bind(web_settings(tmp_path)) as listener:
        async with await asyncio.start_server(greet, sock=listener):
            _, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
            assert await is_off
            writer.close()
            await writer.wait_closed()


def test_serve_will_not_open_an_agent_to_the_world(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "everturn", "serve", "--host", "0.0.0.0", "--port", "0"],
        env={**os.environ, "EVERTURN_HOME": str(tmp_path), "EVERTURN_MODEL": "openai:none"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode != 0
    assert "everturn password" in done.stdout + done.stderr
