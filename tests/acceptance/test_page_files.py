"""The files of a session in a real browser: the tree, previews of each kind, and files that an answer names."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.paging import PAGE, House, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DONE = 'article[data-state="completed"]'


def png(width: int, height: int) -> bytes:
    """A picture in one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes((15, 110, 132)) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def sound() -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(1)
        out.setframerate(8000)
        out.writeframes(b"\x80" * 8000)
    return made.getvalue()


PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
FILES = {
    "README.md": b"# Disk use\n\nSee [the script](ops/backup.sh).\n\n![Chart](report/chart.png)\n",
    "ops/backup.sh": b"#!/bin/sh\nrestic backup /srv\n",
    "report/chart.png": png(40, 30),
    "report/use.csv": b'week,folder,gb\n34,"photos, old",512\n',
    "report/all.pdf": PDF,
    "page.html": b"<p id='said'>In a frame.</p><script>document.getElementById('said').textContent='ran'</script>",
    "tone.wav": sound(),
    "film.webm": b"\x1a\x45\xdf\xa3 no film",
    "data.bin": b"\0\1\2" * 400,
    "notes.txt": b"broken \xff text",
    "long.log": b"line of the log\n" * 100_000,
}


async def with_files(house: House, page: Page, answer: str = "Done.") -> Path:
    """A session with one turn, and these files in its folder."""
    house.provider.on("begin", [answer])
    session = (await house.api("POST", "api/sessions", json={}))["id"]
    folder = house.home / "workspaces" / session
    for path, data in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    await page.goto(f"{house.url}#/s/{session}")
    await say(page, "begin")
    await expect(page.locator(DONE)).to_have_count(1)
    return folder


async def show(page: Page, path: str) -> None:
    """Open the folders on the way, then the file."""
    names = path.split("/")
    for depth in range(1, len(names)):
        folder = page.locator(f'[data-path="{"/".join(names[:depth])}"]')
        if await folder.get_attribute("aria-expanded") == "false":
            await folder.click()
    await page.locator(f'[data-path="{path}"]').click()
    await expect(page.locator(".pv header .mono")).to_have_text(path)


async def test_each_kind_of_file_is_shown_as_what_it_is(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await with_files(house, page)
        await page.locator(".bar").get_by_label("Files").click()
        preview = page.locator(".pv")

        await show(page, "README.md")
        await expect(preview.get_by_role("heading", name="Disk use")).to_be_visible()
        picture = preview.locator(".md img")
        await expect(picture).to_have_js_property("naturalWidth", 40)
        await preview.get_by_label("Show source").click()
        await expect(preview.locator(".code")).to_contain_text("# Disk use")
        await preview.get_by_label("Show source").click()
        await preview.get_by_role("link", name="the script").click()
        await expect(preview.locator(".code")).to_contain_text("restic backup /srv")
        await expect(page.locator('[data-path="ops/backup.sh"]')).to_have_attribute("aria-selected", "true")

        await show(page, "report/chart.png")
        await expect(preview.locator("header small")).to_contain_text("40 \u00d7 30")
        await show(page, "report/use.csv")
        await expect(preview.get_by_role("columnheader")).to_have_text(["week", "folder", "gb"])
        await expect(preview.get_by_role("cell", name="photos, old")).to_be_visible()
        await show(page, "report/all.pdf")
        await expect(preview.locator("iframe")).to_have_attribute("title", "all.pdf")
        await show(page, "tone.wav")
        await expect(preview.locator("audio")).to_have_js_property("duration", 1)
        await show(page, "film.webm")
        await expect(preview.locator("video")).to_be_visible()
        await show(page, "data.bin")
        await expect(preview).to_contain_text("This file can't be shown here.")
        await show(page, "notes.txt")
        await expect(preview).to_contain_text("This file can't be shown here.")
        await show(page, "long.log")
        await expect(preview).to_contain_text("Showing the first 1 MB of 1.6 MB.")
        assert house.complaints == []


async def test_a_page_in_a_frame_runs_nothing(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await with_files(house, page)
        await page.locator(".bar").get_by_label("Files").click()
        await show(page, "page.html")
        frame = page.frame_locator(".pv iframe")
        await expect(frame.locator("#said")).to_have_text("In a frame.")
        assert await page.locator(".pv iframe").get_attribute("sandbox") == ""
        await page.locator(".pv").get_by_label("Show source").click()
        await expect(page.locator(".pv .code")).to_contain_text("<script>")
        # The browser reports the script that it did not run.
        assert [said for said in house.complaints if "sandboxed" not in said] == []


async def test_an_answer_shows_the_pictures_it_names_and_links_to_files(data_dir: Path) -> None:
    answer = "![Disk use](report/chart.png)\n\nSee [the table](report/use.csv) and ![gone](no/such.png)"
    async with open_house(data_dir) as house:
        page = await house.open()
        await with_files(house, page, answer)
        said = page.locator(".md").last
        await expect(said.get_by_role("img", name="Disk use")).to_have_js_property("naturalWidth", 40)
        await expect(said.locator("img")).to_have_count(1)
        await expect(said).to_contain_text("and gone")
        await said.get_by_role("link", name="the table").press("Enter")
        await expect(page.locator(".pv").get_by_role("cell", name="photos, old")).to_be_visible()
        await said.get_by_role("img", name="Disk use").click()
        await expect(page.locator(".pv header .mono")).to_have_text("report/chart.png")
        await page.reload()
        await expect(said.get_by_role("img", name="Disk use")).to_have_js_property("naturalWidth", 40)
        assert house.elsewhere == []
        assert house.complaints == []


async def test_a_file_is_downloaded_and_shown_larger(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        folder = await with_files(house, page)
        await page.locator(".bar").get_by_label("Files").click()
        await show(page, "ops/backup.sh")
        async with page.expect_download() as downloading:
            await page.locator(".pv").get_by_role("link", name="Download").click()
        download = await downloading.value
        assert download.suggested_filename == "backup.sh"
        assert Path(await download.path()).read_bytes() == FILES["ops/backup.sh"]
        await page.locator(".pv").get_by_label("Show larger").click()
        large = page.get_by_role("dialog", name="backup.sh")
        await expect(large).to_contain_text("restic backup /srv")
        await page.keyboard.press("Escape")
        await expect(large).to_have_count(0)
        await expect(page.locator(".pv").get_by_label("Show larger")).to_be_focused()
        # What is no longer there is said, and the rest of the tree stays.
        (folder / "ops/backup.sh").unlink()
        await page.locator('[data-path="notes.txt"]').click()
        await page.locator('[data-path="ops/backup.sh"]').click()
        await expect(page.locator(".pv")).to_contain_text("This file is no longer there.")
        assert house.complaints == []
