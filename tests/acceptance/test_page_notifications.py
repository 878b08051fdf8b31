"""Notifications in a real browser: devices, choices, what the service worker shows, and the server away."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.acceptance.looking import serious
from tests.acceptance.paging import PAGE, House, open_house
from tests.push_service import PushService
from tests.waiting import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
# The browser's own push service is on the internet. Its subscription is replaced by one of the stand-in.
SUBSCRIBE = """PushManager.prototype.subscribe = async function (options) {
    window.subscribedWith = options.applicationServerKey;
    return { toJSON: () => (%s) };
}"""


async def push(context: BrowserContext, page: Page, house: House, message: dict[str, Any]) -> None:
    """Deliver a message to the service worker, as the browser does."""
    session = await context.new_cdp_session(page)
    found: list[str] = []
    session.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: found.extend(one["registrationId"] for one in event["registrations"]),
    )
    # Before that it has nothing that could show the message, and the browser drops it.
    await page.evaluate("async () => { await navigator.serviceWorker.ready }")
    await session.send("ServiceWorker.enable")
    await until("the service worker is registered", lambda: found)
    origin = house.url.rstrip("/")
    data = {"origin": origin, "registrationId": found[0], "data": json.dumps(message)}
    await session.send("ServiceWorker.deliverPushMessage", data)


async def shown(page: Page) -> list[dict[str, Any]]:
    return await page.evaluate(
        """async () => (await (await navigator.serviceWorker.ready).getNotifications())
            .map(({ title, body, tag, actions }) => ({ title, body, tag, actions: actions.map((one) => one.action) }))"""
    )


async def look(page: Page, name: str) -> None:
    """Keep pictures for people, where one is asked for."""
    if folder := os.environ.get("EVERTURN_PICTURES"):
        for width in (1440, 390):
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=f"{folder}/{name}-{width}.png")
        await page.set_viewport_size({"width": 1280, "height": 860})


async def test_a_browser_is_added_chooses_and_shows_what_arrives(data_dir: Path) -> None:
    service = PushService()
    with service.serve():
        private = f'[notifications]\nprivate_addresses = ["{service.private}"]\n'
        (data_dir / "config.toml").write_text(private)
        async with open_house(data_dir) as house:
            context = await house.context()
            await context.grant_permissions(["notifications"], origin=house.url.rstrip("/"))
            made = service.subscription("")
            keys = {"p256dh": made.p256dh, "auth": made.auth}
            subscription = json.dumps({"endpoint": made.endpoint, "keys": keys})
            await context.add_init_script(SUBSCRIBE % subscription)
            page = await house.open(context=context)
            await page.goto(f"{house.url}#/settings/notifications")
            await expect(page.get_by_label("This browser: Job ended")).to_be_disabled()
            await page.get_by_role("button", name="Add", exact=True).click()
            await expect(page.get_by_text("nothing sent yet")).to_be_visible()
            key = (await house.api("GET", "api/push"))["key"]
            assert await page.evaluate("window.subscribedWith") == key

            # Each choice is saved at once.
            await page.get_by_label("This browser: Job ended").uncheck()
            await until("the choice is saved", lambda: _kinds(house, without="job"))
            await page.get_by_role("button", name="Send a test").click()
            await expect(page.get_by_text("Test sent to")).to_be_visible()
            await until("the test has arrived", lambda: service.messages)
            assert await serious(page) == []

            # What arrives is shown, with Deny for an approval, and replaced by one quiet line.
            await push(context, page, house, service.messages[0])
            await until("it is shown", lambda: shown(page))
            [test] = await shown(page)
            assert (test["title"], test["actions"]) == ("Test from Everturn", [])
            session = "ses_" + "0" * 26
            approval = {
                "tag": "approval:1",
                "title": "Approve this command",
                "text": "rm x",
                "session": session,
                "ask": "ask_1",
                "kind": "approval",
                "link": f"#/s/{session}",
            }
            await push(context, page, house, approval)
            await until("it is shown", lambda: _has(page, "Approve this command"))
            actions = {one["title"]: one["actions"] for one in await shown(page)}
            assert actions["Approve this command"] == ["deny", "open"]
            await push(context, page, house, approval | {"title": "Denied", "is_gone": True})
            await until("it has gone", lambda: _lacks(page, "Approve this command"))

            await look(page, "notifications")

            # A subscription that has ended is marked, and can be removed.
            service.statuses = [410]
            await page.get_by_role("button", name="Send a test").click()
            await until("it has ended", lambda: _has_ended(house))
            await page.reload()
            await expect(page.get_by_text("gone", exact=True)).to_be_visible()
            await look(page, "gone")

            # While the server is away the browser shows a page of its own, and comes back by itself.
            await house.kill()
            await page.reload()
            await expect(page.get_by_role("heading", name="The server is away")).to_be_visible()
            await look(page, "away")
            await house.start()
            await expect(page.get_by_role("heading", name="Notifications")).to_be_visible()


async def _kinds(house: House, *, without: str) -> bool:
    [device] = (await house.api("GET", "api/push"))["devices"]
    return without not in device["kinds"] and len(device["kinds"]) == 5


async def _has_ended(house: House) -> bool:
    [device] = (await house.api("GET", "api/push"))["devices"]
    return device["ended_at"] is not None


async def _has(page: Page, title: str) -> bool:
    return any(one["title"] == title for one in await shown(page))


async def _lacks(page: Page, title: str) -> bool:
    return not await _has(page, title)
