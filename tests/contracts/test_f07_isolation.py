"""F07: one account that fails, floods or hangs never delays another one, and never the page."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.gateway import AccountSetup, AccountState
from everturn.domain.platform import Deliver
from everturn.store import Store
from everturn.testing import Say, ScriptedModel
from everturn.testing.harness import open_harness
from everturn.testing.platform import FakePlatform
from everturn.testing.web_server import run_web
from tests.conftest import OpenAnother
from tests.gateways import Platforms, running_gateway
from tests.waiting import until

pytestmark = pytest.mark.anyio
NAMES = ("broken", "failing", "flooded", "hanging", "sound")
TOKENS = {f"EVERTURN_GATEWAY_{name.upper()}_TOKEN": "t" for name in NAMES if name != "broken"}
SETUP = AccountSetup(platform="fake", allow=("ada",))


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


class FailingPlatform(FakePlatform):
    async def receive(self, deliver: Deliver) -> None:
        raise ConnectionResetError("the connection broke")


class SpoiledPlatforms(Platforms):
    """The account ``failing`` cannot receive."""

    def make_one(self, account: str) -> FakePlatform:
        return FailingPlatform(account=account) if account == "failing" else super().make_one(account)


async def test_f07_a_sound_account_and_the_page_do_not_notice_the_others(
    store: Store, data_dir: Path
) -> None:
    platforms = SpoiledPlatforms()
    model = ScriptedModel(then=Say("hello"), clock=SystemClock())
    async with (
        open_harness(store, model=model, clock=SystemClock()) as harness,
        running_gateway(harness, data_dir, platforms, dict.fromkeys(NAMES, SETUP), TOKENS) as gateway,
        run_web(store, data_dir, extras={"gateway": gateway}) as web,
    ):
        await until("all that can be opened are", lambda: len(platforms.made) == 4)
        hanging, flooded, sound = (platforms.made[name] for name in ("hanging", "flooded", "sound"))
        hanging.held_chats = {"42"}
        hanging.say("h1")
        await until("a send hangs", lambda: hanging.sends)
        for number in range(200):
            flooded.say(f"f{number}", sender="eve")
        sound.say("s1")
        await until("the sound account answers", lambda: sound.texts("42") == ["hello"])
        assert hanging.texts("42") == []
        states = {one["name"]: one for one in (await web.http.get("/api/gateway")).json()["accounts"]}
        assert states["sound"]["health"]["state"] == AccountState.CONNECTED
        assert states["failing"]["health"]["state"] == AccountState.FAILING
        assert "the connection broke" in states["failing"]["health"]["error"]
        assert "no token" in states["broken"]["health"]["error"]
        hanging.release()
        await until("the hanging one goes on", lambda: hanging.texts("42") == ["hello"])


async def test_f07_an_account_moves_to_another_server_when_its_server_stops(
    store: Store, open_another: OpenAnother, data_dir: Path
) -> None:
    other = await open_another()
    here, there = Platforms(), Platforms()
    model = ScriptedModel(then=Say("hello"), clock=SystemClock())
    accounts, tokens = {"sound": SETUP}, {"EVERTURN_GATEWAY_SOUND_TOKEN": "t"}
    is_serving, stop = anyio.Event(), anyio.Event()

    async def run_first() -> None:
        async with (
            open_harness(store, model=model, clock=SystemClock()) as harness,
            running_gateway(harness, data_dir, here, accounts, tokens) as gateway,
        ):
            await until("the first serves it", lambda: gateway.status()["serving"])
            is_serving.set()
            await stop.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(run_first, name="the first server")
        await is_serving.wait()
        async with (
            open_harness(other, model=model, clock=SystemClock()) as harness,
            running_gateway(harness, data_dir, there, accounts, tokens) as standby,
        ):
            await until("the second is ready", lambda: there.made)
            assert standby.status()["serving"] == 0
            stop.set()
            await until("the second serves it", lambda: standby.status()["serving"])
            there.made["sound"].say("s1")
            await until("the second answers", lambda: there.made["sound"].texts("42") == ["hello"])
