"""The page in German, from the first sight to the settings: its words, its numbers, and nothing that sticks out."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.paging import PAGE, Tool, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DONE = 'article[data-state="completed"]'
SECTIONS = [
    "models",
    "profiles",
    "skills",
    "prompts",
    "mcp",
    "tools",
    "approvals",
    "budgets",
    "memory",
    "knowledge",
    "channels",
    "access",
    "usage",
    "audit",
    "health",
    "appearance",
    "notifications",
    "keyboard",
]
# A folder for pictures of each place, to be looked at.
PICTURES = os.environ.get("EVERTURN_PICTURES")
# English words that no German sentence has. Names, code and what a person or a model wrote are left out.
LEFTOVER = re.compile(r"\b(the|and|with|your|you|this|are|from|when|which|shown|saved|settings)\b", re.I)


# Said by the server and not translated: what a profile tells the model, and what the sandbox found on this machine.
ENGLISH = re.compile(r"^You are Everturn|^bubblewrap |Landlock")


async def look(page: Page, name: str, problems: list[str]) -> None:
    """Nothing is wider than the screen, no word is English, and every label has room."""
    wide, width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    if wide > width:
        problems.append(f"{name}: {wide} wide")
    problems.extend(f"{name}: cut: {node}" for node in await cut(page))
    shown = await page.evaluate(
        """() => {
            const foreign = 'noscript, script, style, svg, code, pre, kbd, .say, .md, .mono, .out';
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const found = [];
            while (walker.nextNode()) if (!walker.currentNode.parentElement.closest(foreign)) found.push(walker.currentNode.data);
            for (const node of document.querySelectorAll('[aria-label], [title], [placeholder]'))
                for (const name of ['aria-label', 'title', 'placeholder']) found.push(node.getAttribute(name) ?? '');
            return [...new Set(found.map((text) => text.trim()))];
        }"""
    )
    problems.extend(
        f"{name}: {text[:200]}" for text in shown if LEFTOVER.search(text) and not ENGLISH.search(text)
    )
    problems.extend(f"{name}: toast: {text}" for text in await page.locator(".toast").all_inner_texts())
    if PICTURES:
        await page.screenshot(path=f"{PICTURES}/{name}-{width}.png")


async def cut(page: Page) -> list[str]:
    """Buttons and labels whose text is longer than their room."""
    return await page.evaluate(
        """() => [...document.querySelectorAll('button, label, h2, b, th, .lead')]
            .filter((node) => node.checkVisibility() && !node.closest('.vh, .row, pre, code'))
            .filter((node) => node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).overflowX !== 'visible' && getComputedStyle(node).display !== 'inline')
            .map((node) => node.outerHTML.slice(0, 160))"""
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", [1280, 390])
async def test_the_page_is_german_from_the_first_sight_to_the_settings(data_dir: Path, width: int) -> None:
    async with open_house(data_dir) as house:
        house.provider.on(
            "Schreib",
            [Tool("write_file", {"path": "notizen.md", "content": "# Notizen\n\nEins\n"})],
            [Tool("terminal", {"command": "rm -rf alt"})],
            ["Fertig: **notizen.md** ist angelegt."],
        )
        problems: list[str] = []
        page = await house.open(locale="de-DE", has_touch=width < 600)
        await page.set_viewport_size({"width": width, "height": 860})
        await expect(page.locator("html")).to_have_attribute("lang", "de")
        await expect(page.get_by_role("heading", name="Wobei kann ich helfen?")).to_be_visible()
        await look(page, "01-anfang", problems)
        await say(page, "Schreib eine Notiz")
        await expect(page.get_by_role("button", name="Einmal erlauben")).to_be_visible()
        await look(page, "02-freigabe", problems)
        await page.get_by_role("button", name="Einmal erlauben").click()
        await expect(page.locator(DONE)).to_have_count(1)
        await look(page, "03-antwort", problems)
        await page.keyboard.press("Control+.")
        await expect(page.locator(".panel")).to_be_visible()
        await look(page, "04-details", problems)
        await page.locator(".panel").get_by_role("tab", name="Dateien").click()
        await expect(page.locator(".panel").get_by_text("notizen.md").first).to_be_visible()
        await look(page, "05-dateien", problems)
        for place in ("needs", "schedules", "jobs"):
            await page.goto(f"{house.url}#/{place}")
            await expect(page.locator("main")).to_be_visible()
            await look(page, f"06-{place}", problems)
        for section in SECTIONS:
            await page.goto(f"{house.url}#/settings/{section}")
            await expect(page.locator(".pane h2").first).to_be_visible()
            await expect(page.locator(".pane .spin, .pane .loading")).to_have_count(0)
            await look(page, f"10-{section}", problems)
        assert problems == [], "\n".join(problems)
        assert house.complaints == []


async def test_the_language_is_chosen_in_the_settings_and_only_its_words_are_loaded(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await (await house.context()).new_page()
        await page.goto(house.url + "#/settings/appearance")
        await expect(page.locator("html")).to_have_attribute("lang", "en")
        words = (
            "[...document.querySelectorAll('link[rel=modulepreload][href*=first]')].map((link) => link.href)"
        )
        english = await page.evaluate(words)
        await page.get_by_label("Language").select_option("de")
        await expect(page.locator(".pane h2")).to_have_text("Darstellung")
        await expect(page.locator("html")).to_have_attribute("lang", "de")
        german_words = await page.evaluate(words)
        assert english
        assert german_words
        assert not set(english) & set(german_words)
        asked = await page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert not set(english) & set(asked)
        assert (await house.api("GET", "api/settings"))["language"] == "de"
        # It stays, whatever the browser speaks; Automatic follows it again.
        await page.reload()
        await expect(page.locator(".pane h2")).to_have_text("Darstellung")
        await page.get_by_label("Sprache").select_option("auto")
        await expect(page.locator(".pane h2")).to_have_text("Appearance")
        assert (await house.api("GET", "api/settings"))["language"] is None
        assert house.complaints == []


async def test_the_sign_in_speaks_the_language_of_the_browser(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.extra["EVERTURN_PASSWORD"] = "correct horse"
        await house.start()
        context = await house.context(locale="de-AT")
        page = await context.new_page()
        await page.goto(house.url)
        await expect(page.locator(".dialog")).to_contain_text("Anmelden")
        await page.fill(".dialog input", "falsch")
        await page.press(".dialog input", "Enter")
        await expect(page.locator(".dialog")).to_contain_text("Falsches Passwort.")
        assert house.complaints == []
