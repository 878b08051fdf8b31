"""A contact sheet: named states of the page, light and dark, wide and narrow, as pictures to look at.

    python frontend/dev/sheet.py [folder] [name ...]

Needs the built page and Chromium. Writes one PNG per picture and sheet.png with all of them.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

import fake
import scenes

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"wide": (1280, 860), "narrow": (360, 740)}


@dataclass
class State:
    """``session``: a title of the full house, or a route. ``act``: what to do before the picture."""

    session: str
    act: Any = None
    house: str = "full"


def palette(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("retry lock")
    page.wait_for_timeout(500)


def panel(page: Page) -> None:
    page.keyboard.press("Control+.")


def workspace(page: Page) -> None:
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Control+k")
    page.keyboard.type(">show files")
    page.keyboard.press("Enter")
    page.wait_for_timeout(400)


def opened(page: Page) -> None:
    workspace(page)
    page.get_by_role("treeitem", name="backup.sh").last.click()
    page.wait_for_timeout(500)


def mention(page: Page) -> None:
    page.fill("[data-composer]", "")
    page.type("[data-composer]", "Compare @ba")
    page.wait_for_timeout(300)


def own_server(page: Page) -> None:
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Your own server").click()
    page.get_by_label("Address").fill("http://nas-01:11434/v1")
    page.get_by_role("button", name="Test").click()
    page.wait_for_timeout(500)


def typing(page: Page) -> None:
    page.fill("[data-composer]", "Also check the webmail host")


def editing(page: Page) -> None:
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("e")
    page.locator(".card.wait textarea").fill("sudo systemctl reload postfix")


def top(page: Page) -> None:
    page.evaluate("document.querySelector('.roll').scrollTop = 0")


def drawer(page: Page) -> None:
    button = page.locator(".bar .nar")
    if button.is_visible():
        button.click()
        page.wait_for_timeout(400)


def menu(page: Page) -> None:
    page.locator(".bar").get_by_label("Session menu").click()


def keys(page: Page) -> None:
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")


def commands(page: Page) -> None:
    page.fill("[data-composer]", "/")
    page.type("[data-composer]", "re")


def away(page: Page) -> None:
    page.context.set_offline(True)
    page.fill("[data-composer]", "Check the disk on nas-01")
    page.press("[data-composer]", "Enter")
    page.wait_for_timeout(700)


def signed_out(page: Page) -> None:
    page.route("**/api/**", lambda route: route.fulfill(status=401, body="{}"))
    page.fill("[data-composer]", "Check the disk on nas-01")
    page.press("[data-composer]", "Enter")
    page.wait_for_timeout(400)


def deleted(page: Page) -> None:
    page.locator(".bar").get_by_label("Session menu").click()
    page.get_by_role("menuitem", name="Delete", exact=True).click()


def right_to_left(page: Page) -> None:
    page.fill("[data-composer]", "مرحبا، كيف حال القرص nas-01 اليوم؟")


def connect(page: Page) -> None:
    page.get_by_text("Anthropic").first.click()
    page.get_by_label("Paste your key").fill("sk-ant-0000000000000000003fQA")
    page.get_by_role("button", name="Test").click()
    page.wait_for_timeout(500)


STATES = {
    "talking": State("Nightly backup keeps failing"),
    "approval": State("Renew the mail certificate", typing),
    "approval-edit": State("Renew the mail certificate", editing),
    "crash": State("Postgres 17 for Paperless", panel),
    "crash-narrow": State("Postgres 17 for Paperless"),
    "endings": State("Every ending"),
    "endings-top": State("Every ending", top),
    "interrupted": State("Interrupted for good"),
    "question": State("A question is open"),
    "thinking": State("Thinking now"),
    "summarised": State("Summarised"),
    "markdown": State("Markdown of every kind", top),
    "markdown-end": State("Markdown of every kind"),
    "long": State("A very long talk"),
    "not-sent": State("Summarised", away),
    "sign-in": State("Summarised", signed_out),
    "deleted": State("Goes on where it stopped", deleted),
    "right-to-left": State("Nightly backup keeps failing", right_to_left),
    "palette": State("Nightly backup keeps failing", palette),
    "commands": State("Every ending", commands),
    "menu": State("Every ending", menu),
    "keys": State("Every ending", keys),
    "workspace": State("Nightly backup keeps failing", workspace),
    "file": State("Nightly backup keeps failing", opened),
    "mention": State("Every ending", mention),
    "own-server": State("#/settings/models", own_server),
    "drawer": State("Nightly backup keeps failing", drawer),
    "new": State("#/"),
    "first": State("#/", None, "fresh"),
    "first-key": State("#/", connect, "fresh"),
    "settings-models": State("#/settings/models"),
    "settings-tools": State("#/settings/tools"),
    "settings-memory": State("#/settings/memory"),
    "settings-approvals": State("#/settings/approvals"),
    "settings-profiles": State("#/settings/profiles"),
    "settings-health": State("#/settings/health"),
    "settings-access": State("#/settings/access"),
    "settings-appearance": State("#/settings/appearance"),
}


def serve(scene: str) -> str:
    """The fake server in a thread of its own; returns its address."""
    config = uvicorn.Config(
        fake.application(getattr(scenes, scene)()),
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="off",
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"


def take(browser: Browser, address: str, ids: dict[str, str], state: State, theme: str, size: str) -> bytes:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=theme,
        device_scale_factor=2,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.on("pageerror", lambda error: print("page error:", error))
        page.goto(address + (state.session if state.session.startswith("#") else f"#/s/{ids[state.session]}"))
        page.wait_for_timeout(900)
        if state.act:
            state.act(page)
            page.wait_for_timeout(400)
        return page.screenshot()
    finally:
        context.close()


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/sheet")
    wanted = sys.argv[2:] or list(STATES)
    folder.mkdir(parents=True, exist_ok=True)
    addresses: dict[str, tuple[str, dict[str, str]]] = {}
    cells = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for name in wanted:
            state = STATES[name]
            if state.house not in addresses:
                address = serve(state.house)
                with urllib.request.urlopen(address + "api/sessions?limit=100") as answer:
                    ids = {row.get("title", ""): row["id"] for row in json.load(answer)["items"]}
                addresses[state.house] = (address, ids)
            for size in SIZES:
                for theme in ("light", "dark"):
                    picture = folder / f"{name}-{size}-{theme}.png"
                    picture.write_bytes(take(browser, *addresses[state.house], state, theme, size))
                    cells.append((name, picture))
        compose(browser, folder, cells)
        browser.close()


def compose(browser: Browser, folder: Path, cells: list[tuple[str, Path]]) -> None:
    figures = "".join(
        f'<figure><img src="{path.name}" style="height:430px"><figcaption>{path.stem}</figcaption></figure>'
        for _, path in cells
    )
    html = folder / "sheet.html"
    html.write_text(
        "<!doctype html><meta charset=utf-8><style>body{font:13px sans-serif;background:#888;margin:16px;display:flex;"
        "flex-wrap:wrap;gap:16px}figure{margin:0}figcaption{color:#fff;padding-top:4px}</style>" + figures
    )
    page = browser.new_page(viewport={"width": 2000, "height": 1200})
    page.goto(html.resolve().as_uri())
    page.screenshot(path=str(folder / "sheet.png"), full_page=True)


main()
