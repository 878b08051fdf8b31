"""Take the README's pictures: pictures.py OUT, beside `fake.py` on its own port."""

from __future__ import annotations

import sys
from pathlib import Path

from look import ARGS
from playwright.sync_api import Browser, Page, sync_playwright

ADDRESS = "http://127.0.0.1:8421/"
WIDE, NARROW = (1280, 860), (360, 740)


def session(page: Page, title: str) -> None:
    page.get_by_role("link", name=title).first.click()
    page.wait_for_timeout(800)


def talking(page: Page) -> None:
    session(page, "Nightly backup keeps failing")


def crash(page: Page) -> None:
    session(page, "Postgres 17 for Paperless")


def approval(page: Page) -> None:
    session(page, "Renew the mail certificate")


def search(page: Page) -> None:
    session(page, "Nightly backup keeps failing")
    page.keyboard.press("Control+k")
    page.keyboard.type("backup")


def take(browser: Browser, out: Path, size: tuple[int, int]) -> None:
    shots = [talking, crash, approval, search] if size == WIDE else [talking]
    for shot in shots:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, device_scale_factor=2)
        page.goto(ADDRESS)
        page.wait_for_timeout(800)
        if size == NARROW:
            page.get_by_role("button", name="Sessions", exact=True).click()
        shot(page)
        page.wait_for_timeout(1200)
        page.screenshot(path=out / ("narrow.png" if size == NARROW else f"{shot.__name__}.png"))
        page.close()


def main() -> None:
    out = Path(sys.argv[1])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGS)
        take(browser, out, WIDE)
        take(browser, out, NARROW)
        browser.close()


if __name__ == "__main__":
    main()
