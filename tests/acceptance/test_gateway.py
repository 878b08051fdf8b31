"""Accounts on messaging platforms, with the real server."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import httpx2
import pytest

from everturn.delivery.signatures import sign
from everturn.domain.clock import SystemClock
from everturn.testing.ports import free_port
from everturn.testing.webhook_service import WebhookService
from everturn.testing.wires import WireAnswer, WireServer, openai_answer
from tests.acceptance.command_line import environment, server
from tests.waiting import until

pytestmark = pytest.mark.anyio
KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
BODY = b'{"text": "deployed", "chat": "deploys", "sender": "ci"}'


def config(port: int) -> str:
    return f"""
[gateway.ci]
platform = "webhook"
url = "http://127.0.0.1:{port}/in"
private_addresses = ["127.0.0.1:{port}"]
"""


def signed(message_id: str) -> dict[str, str]:
    return sign(KEY, message_id, int(time.time()), BODY) | {"content-type": "application/json"}


async def test_f07_of_two_servers_one_is_killed_and_the_other_serves_its_account(
    data_dir: Path, wires: WireServer
) -> None:
    wires.play(*[WireAnswer(openai_answer(["Well done."])) for _ in range(6)])
    receiver, ports = WebhookService(KEY, SystemClock()), (free_port(), free_port())
    with receiver.serve():
        (data_dir / "config.toml").write_text(config(receiver.port))
        environ = environment(data_dir, wires, PYTHONUNBUFFERED="1", EVERTURN_GATEWAY_CI_SECRET=SECRET)
        async with (
            server(environ, ports[1]) as doomed,
            server(environ, ports[0]),
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{ports[0]}", trust_env=False) as http,
        ):
            # Any server takes what is posted; the one that was first serves the account.
            assert (await http.post("/hooks/ci", content=BODY, headers=signed("msg_1"))).status_code == 202
            await until("the first is answered", lambda: len(receiver.read()) == 1)
            doomed.process.kill()
            await doomed.process.wait()
            assert (await http.post("/hooks/ci", content=BODY, headers=signed("msg_2"))).status_code == 202
            await until("the second is answered", lambda: len(receiver.read()) == 2)
    assert receiver.read() == ["Well done."] * 2


async def test_a_signed_message_is_answered_by_the_real_server_once(
    data_dir: Path, wires: WireServer
) -> None:
    wires.play(*[WireAnswer(openai_answer(["Well done."])) for _ in range(3)])
    receiver, port = WebhookService(KEY, SystemClock()), free_port()
    with receiver.serve():
        (data_dir / "config.toml").write_text(config(receiver.port))
        environ = environment(data_dir, wires, PYTHONUNBUFFERED="1", EVERTURN_GATEWAY_CI_SECRET=SECRET)
        async with (
            server(environ, port),
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
        ):
            headers = signed("msg_1")
            for _ in range(2):  # the second is a repeat
                answer = await http.post("/hooks/ci", content=BODY, headers=headers)
                assert (answer.status_code, answer.content) == (202, b"")
            await until("the answer is posted", receiver.read)
            forged = await http.post("/hooks/ci", content=BODY + b" ", headers=headers)
            unknown = await http.post("/hooks/nobody", content=BODY, headers=headers)
            assert (forged.status_code, unknown.status_code) == (401, 401)
            assert forged.content == unknown.content  # it does not tell which accounts there are
    assert receiver.read() == ["Well done."]
