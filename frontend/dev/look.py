"""Take pictures of the page: look.py ADDRESS OUT NAME[:theme[:width[:height]]] ..., NAME a session title or a #route."""

from __future__ import annotations

import json
import sys
import urllib.request

from playwright.sync_api import sync_playwright

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def main() -> None:
    address, out, *shots = sys.argv[1:]
    with urllib.request.urlopen(address + "api/sessions?limit=100") as answer:
        ids = {row.get("title"): row["id"] for row in json.load(answer)["items"]}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGS)
        for index, shot in enumerate(shots):
            name, theme, width, height, *act = [
                *shot.split("|"),
                *["", "", ""][: max(0, 4 - len(shot.split("|")))],
            ]
            context = browser.new_context(
                viewport={"width": int(width or 1440), "height": int(height or 1000)},
                color_scheme="dark" if theme == "dark" else "light",
                device_scale_factor=1,
            )
            page = context.new_page()
            page.on(
                "console",
                lambda m: print("console:", m.type, m.text[:300]) if m.type in ("error", "warning") else None,
            )
            page.on("pageerror", lambda e: print("pageerror:", str(e)[:600]))
            page.goto(address + (name if name.startswith("#") else f"#/s/{ids[name]}"))
            page.wait_for_timeout(1200)
            for step in act:
                if step.startswith("click:"):
                    page.click(step[6:])
                elif step.startswith("press:"):
                    page.keyboard.press(step[6:])
                elif step.startswith("type:"):
                    page.keyboard.type(step[5:])
                elif step.startswith("eval:"):
                    print(page.evaluate(step[5:]))
                page.wait_for_timeout(500)
            page.screenshot(path=f"{out}/{index:02d}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
