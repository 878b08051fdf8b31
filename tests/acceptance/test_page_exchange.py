"""A session leaves as one archive with its files and comes back by a drop on the list, in a real browser."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests import foreign_exports
from tests.acceptance.paging import PAGE, Tool, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
    pytest.mark.timeout(300),
]
DONE = 'article[data-state="completed"]'
DROP = """([name, bytes]) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(bytes), (char) => char.charCodeAt(0))], name));
    const event = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
    document.querySelector("nav.list").dispatchEvent(event);
}"""


async def drop(page: Page, name: str, content: bytes) -> None:
    await page.evaluate(DROP, [name, base64.b64encode(content).decode()])


async def test_a_session_with_files_is_exported_and_imported_by_a_drop(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on(
            "write", [Tool("write_file", {"path": "a.txt", "content": "kept\n"})], ["Written down."]
        )
        page = await house.open()
        await say(page, "write")
        await expect(page.locator(DONE)).to_have_count(1)
        await page.locator(".bar").get_by_label("Session menu").click()
        async with page.expect_download() as downloading:
            await page.get_by_role("menuitem", name="Export with files").click()
        archive = Path(await (await downloading.value).path()).read_bytes()
        assert archive.startswith(b"PK")

        before = page.url
        await drop(page, "session.zip", archive)
        await expect(page.locator(".toast")).to_contain_text("Imported:")
        await page.wait_for_url(lambda url: url != before)
        await expect(page.locator(".md")).to_contain_text("Written down.")
        await page.locator(".bar").get_by_label("Files").click()
        await page.get_by_role("treeitem").filter(has_text="a.txt").click()
        await expect(page.locator(".panel .code")).to_contain_text("kept")
        assert len((await house.api("GET", "api/sessions"))["items"]) == 2

        # A damaged one is refused in words, and nothing came in. Anything else is attached as before.
        async with page.expect_response("**/import/archive") as refusing:
            await drop(page, "damaged.zip", archive[:100])
        refused = await refusing.value
        assert refused.status == 422
        await expect(page.locator(".toast").filter(has_text=(await refused.json())["detail"])).to_be_visible()
        assert len((await house.api("GET", "api/sessions"))["items"]) == 2
        await drop(page, "notes.txt", b"words")
        await expect(page.locator(".comp")).to_contain_text("notes.txt")
        assert not house.complaints


async def test_conversations_of_another_system_are_imported_by_a_drop_and_reported(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        content = json.dumps(foreign_exports.claude()).encode()
        await drop(page, "conversations.json", content)
        sheet = page.get_by_role("dialog")
        await expect(sheet).to_contain_text("Imported from Claude")
        await expect(sheet).to_contain_text("1 conversation imported, 1 not imported")
        await expect(page.locator(".toast")).to_have_count(0)
        await expect(sheet).to_contain_text("The file map.png is not in the export.")
        await sheet.get_by_role("button", name="Rivers").click()
        await expect(sheet).to_have_count(0)
        await expect(page.locator(".md").last).to_contain_text("The Po.")
        await expect(page.locator(".side .row")).to_have_count(1)
