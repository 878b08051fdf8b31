"""Channels in a real browser: accounts with their health, pairing, messages to decide about, connecting."""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path

import httpx2
import msgspec
import pytest
from playwright.async_api import expect

from everturn.delivery.signatures import sign
from everturn.domain.clock import SystemClock
from everturn.testing.webhook_service import WebhookService
from tests.acceptance.looking import serious
from tests.acceptance.paging import PAGE, House, Tool, open_house, say
from tests.telegram_api import TOKEN, TelegramService
from tests.waiting import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def configured(port: int) -> str:
    return f"""
[gateway.ci]
platform = "webhook"
url = "http://127.0.0.1:{port}/in"
private_addresses = ["127.0.0.1:{port}"]
"""


async def role_of_ada(house: House, role: str) -> bool:
    [person] = (await house.api("GET", "api/gateway/bot"))["people"]
    return person["role"] == role


async def post(house: House, message_id: str, text: str) -> None:
    """What a program on the other side sends."""
    body = msgspec.json.encode({"text": text, "chat": "deploys", "sender": "ci-robot"})
    headers = sign(KEY, message_id, int(time.time()), body) | {"content-type": "application/json"}
    async with httpx2.AsyncClient(base_url=house.url, trust_env=False) as http:
        answer = await http.post("hooks/ci", content=body, headers=headers)
    assert answer.status_code == 202


async def test_a_webhook_is_watched_and_connected_and_its_messages_are_sent_again(data_dir: Path) -> None:
    receiver = WebhookService(KEY, SystemClock())
    with receiver.serve():
        (data_dir / "config.toml").write_text(configured(receiver.port))
        async with open_house(data_dir) as house:
            house.provider.on("deployed", ["Well done."])
            await house.api("PATCH", "api/gateway/ci", json={"secrets": {"secret": SECRET}})
            page = await house.open()
            await page.goto(f"{house.url}#/settings/channels")
            card = page.get_by_role("region", name="ci", exact=True)
            await expect(card).to_contain_text("Connected")
            await expect(card).to_contain_text("set up in config.toml")
            await card.get_by_label("Menu of ci").click()
            await expect(page.get_by_role("menuitem")).to_have_text(["Replace secret"])
            await page.keyboard.press("Escape")

            # A message that the other side refuses waits for a person.
            receiver.refuse()
            await post(house, "msg_1", "deployed")
            await expect(card).to_contain_text("1 message")
            await expect(card).to_contain_text("A message was not delivered")
            await card.get_by_role("button", name="Send again").click()
            await until("the answer is posted", receiver.read)
            assert receiver.read() == ["Well done."]
            await expect(card).not_to_contain_text("A message was not delivered")
            await expect(page.get_by_role("button", name="Pairing code")).to_have_count(0)
            assert await serious(page) == []

            # What is wrong is said, and nothing of it is stored.
            await page.get_by_role("button", name="Webhook", exact=True).click()
            await page.get_by_label("Secret (whsec_…)").fill("short")
            await page.get_by_label("Where answers are posted").fill("https://example.com/in")
            await page.get_by_role("button", name="Connect", exact=True).click()
            await expect(page.get_by_role("alert")).to_contain_text("Nothing was stored.")
            await page.get_by_label("Secret (whsec_…)").fill(SECRET)
            await page.get_by_role("button", name="Connect", exact=True).click()
            await expect(page.get_by_role("listitem").nth(1)).to_contain_text(
                "The secret can't be viewed again."
            )
            await expect(page.get_by_label("Address")).to_have_value(f"{house.url}hooks/webhook")
            assert await serious(page) == []
            await page.get_by_role("button", name="Done").click()
            added = page.get_by_role("region", name="webhook", exact=True)
            await expect(added).to_contain_text("Connected")
            await added.get_by_label("Menu of webhook").click()
            await page.get_by_role("menuitem", name="Turn off").click()
            await expect(added.locator(".state")).to_have_text("Off")
            await added.get_by_label("Menu of webhook").click()
            await page.get_by_role("menuitem", name="Remove").click()
            await added.get_by_role("button", name="Remove").click()
            await expect(added).to_have_count(0)
            assert house.complaints == []


async def test_a_telegram_account_is_paired_by_a_code_and_its_unknown_send_is_decided_about(
    data_dir: Path,
) -> None:
    telegram = TelegramService()
    async with telegram.serve():
        (data_dir / "config.toml").write_text(
            f'[gateway.bot]\nplatform = "telegram"\napi_url = "{telegram.url}"\nwhen_unknown = "hold"\n'
        )
        async with open_house(data_dir) as house:
            house.provider.on("ran?", ["It ran at 02:00."])
            house.provider.on("Unlock", [Tool("terminal", {"command": "$TOOL unlock"})], ["It is open."])
            await house.api("GET", "api/gateway/platforms/telegram", timeout=300)  # loads its library
            page = await house.open()
            await page.goto(f"{house.url}#/settings/channels")
            card = page.get_by_role("region", name="bot", exact=True)

            # Without a token it does not try to connect, and asks for one.
            await expect(card.locator(".state")).to_have_text("Not connected")
            await card.get_by_role("button", name="Enter token").click()
            await card.get_by_label("Token", exact=True).fill("123:wrong")
            await card.get_by_role("button", name="Save").click()
            await expect(card.get_by_role("alert").first).to_contain_text("Nothing was changed.")
            await card.get_by_label("Token", exact=True).fill(TOKEN)
            await card.get_by_role("button", name="Save").click()
            await expect(card).to_contain_text("helper_bot")

            # The sender of the code is paired, and the page notices it.
            await page.set_viewport_size({"width": 390, "height": 600})
            await page.get_by_role("button", name="Pairing code").click()
            await expect(page.locator(".livec")).to_contain_text("Waiting for your message.")
            await expect(page.locator(".codeb")).to_be_in_viewport(ratio=1)
            await page.set_viewport_size({"width": 1280, "height": 860})
            await expect(page.get_by_label("QR code of the link to the chat")).to_be_visible()
            telegram.say(await page.locator(".codeb").inner_text())
            await expect(page.locator(".livec")).to_contain_text("Paired with Ada")
            await page.get_by_label("Role of Ada Lovelace").select_option("Member")
            await expect(page.get_by_label("Role of Ada Lovelace")).to_have_value("member")
            await page.get_by_label("Role of Ada Lovelace").select_option("Owner")
            await until("the role is stored", lambda: role_of_ada(house, "owner"))
            await expect(page.get_by_label("Remove Ada Lovelace")).to_be_visible()

            # Telegram took the answer, and the connection ended before it said so.
            telegram.break_off()
            telegram.say("Has it ran?")
            await expect(card).to_contain_text("A message may not have arrived")
            await expect(card.locator("q")).to_have_text("It ran at 02:00.")
            assert await serious(page) == []
            await card.get_by_role("button", name="It arrived").click()
            await expect(card).not_to_contain_text("A message may not have arrived")
            assert [said for said in telegram.read() if "02:00" in said] == ["It ran at 02:00."]

            # The session is in both places: what is written in one is answered in both.
            [session] = (await house.api("GET", "api/sessions"))["items"]
            await page.goto(f"{house.url}#/s/{session['id']}")
            await expect(page.locator(".you")).to_contain_text("From Telegram")
            await expect(page.locator(".bar .chip")).to_have_text(re.compile("Telegram, Ada"))
            await expect(page.locator(".comp")).to_contain_text("Here and Telegram")
            await expect(page.locator(".tfoot")).to_contain_text("Delivered to Telegram")
            await say(page, "Was it long?")
            await expect(page.locator(".you").last).to_contain_text("Saved")
            await until("the chat has it", lambda: any("Was it long?" in said for said in telegram.read()))
            await expect(page.locator(".tfoot").last).to_contain_text("Delivered to Telegram")

            # An approval is asked for in both, and answered in the chat.
            await say(page, "Unlock it.")
            await expect(page.locator(".card.wait")).to_contain_text("also asked in Telegram")
            await until("the chat is asked", telegram.labels)
            telegram.people_press("Allow once")
            await expect(page.locator(".card.wait")).to_have_count(0)
            await expect(page.locator(".step", has_text="You allowed in Telegram")).to_be_visible()
            await until("the chat has it", lambda: any("It is open." in said for said in telegram.read()))
            await page.reload()
            await expect(page.locator(".step", has_text="You allowed in Telegram")).to_be_visible()
            # The message with the buttons is edited beside the answer, before or after it.
            await until(
                "the question is closed",
                lambda: any(said.startswith("Allowed in Telegram at") for said in telegram.read()),
            )
            await page.get_by_label("Settings").click()
            await page.get_by_role("link", name="Channels").click()
            await page.get_by_label("Remove Ada Lovelace").click()
            await expect(page.get_by_label("Remove Ada Lovelace")).to_have_count(0)
            assert house.complaints == []
