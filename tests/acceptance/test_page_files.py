"""The files of a session in a real browser: the tree, previews of each kind, and files that an answer names."""

from __future__ import annotations

import io
import re
import struct
import wave
import zipfile
import zlib
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.acceptance.looking import serious
from tests.acceptance.paging import PAGE, House, Tool, open_house, say

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


async def with_turns(house: House, page: Page) -> None:
    """Two turns: the first writes two files, the second changes one of them and adds a third."""

    def write(path: str, text: str) -> Tool:
        return Tool("write_file", {"path": path, "content": text})

    house.provider.on("first", [write("a.txt", "one\n"), write("ops/b.sh", "exit 0\n")], ["Written."])
    house.provider.on(
        "second",
        [Tool("read_file", {"path": "a.txt"})],
        [write("a.txt", "one\ntwo\n"), write("c.csv", "x,y\n1,2\n")],
        ["Changed."],
    )
    for count, words in enumerate(("the first", "the second"), 1):
        await say(page, words)
        await expect(page.locator(DONE)).to_have_count(count)


def members(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist() if not name.endswith("/")}


async def test_a_damaged_version_is_said_to_be_damaged_and_is_not_restored(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.on(
            "first", [Tool("write_file", {"path": "a.txt", "content": "as it was\n"})], ["Done."]
        )
        house.provider.on(
            "second", [Tool("write_file", {"path": "a.txt", "content": "as it is\n"})], ["Done."]
        )
        page = await house.open()
        for number, text in enumerate(("first", "second"), 1):
            await say(page, text)
            await expect(page.locator(DONE)).to_have_count(number)
        [pack] = [pack for pack in (data_dir / "blobs").iterdir() if b"as it was" in pack.read_bytes()]
        pack.write_bytes(pack.read_bytes().replace(b"as it was", b"AS IT WAS"))

        await page.locator(".bar").get_by_label("Files").click()
        panel = page.get_by_role("complementary", name="Files")
        await panel.locator('[data-path="a.txt"]').click()
        await panel.get_by_role("button", name="Compare 1 and 2").click()
        await expect(panel.get_by_role("alert")).to_contain_text("can't be read")
        await panel.get_by_role("button", name="Restore turn 1").click()
        sheet = page.get_by_role("dialog")
        await sheet.get_by_role("button", name="Restore").click()
        await expect(sheet).to_contain_text("a.txt was not restored and is as before.")
        [folder] = (data_dir / "workspaces").iterdir()
        assert (folder / "a.txt").read_text() == "as it is\n"


async def test_what_changed_is_marked_and_compared(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await with_turns(house, page)
        await page.locator(".bar").get_by_label("Files").click()
        panel = page.get_by_role("complementary", name="Files")
        await expect(panel.get_by_role("radio", name="Session")).to_have_text("Session3")
        await expect(panel.get_by_role("radio", name="Turn")).to_have_text("Turn2")
        changed = panel.locator('[data-path="a.txt"]')
        await expect(changed.get_by_label("changed in this turn")).to_be_visible()
        await expect(changed).to_contain_text("+1")
        await panel.locator('[data-path="ops"]').click()
        earlier = panel.locator('[data-path="ops/b.sh"]')
        await expect(earlier.get_by_label("changed earlier in this session")).to_be_visible()

        await panel.get_by_role("radio", name="Turn").click()
        await expect(panel.get_by_role("treeitem")).to_have_count(2)
        await changed.click()
        versions = panel.locator(".hist button")
        await expect(versions).to_have_count(2)
        await panel.get_by_role("button", name="Compare 1 and 2").click()
        await expect(panel.locator(".diff .add")).to_contain_text("two")
        await expect(panel.locator(".diff .del")).to_have_count(0)
        # One version alone is looked at, and is what a download is of.
        await versions.last.click()
        await expect(panel.locator(".code code")).to_have_text("one")
        async with page.expect_download() as downloading:
            await panel.locator(".pvb").get_by_role("link", name="Download").click()
        assert Path(await (await downloading.value).path()).read_text() == "one\n"

        await panel.get_by_role("button", name="Compare", exact=True).first.click()
        rows = panel.locator(".chg")
        await expect(rows).to_have_text([re.compile("a.txt"), re.compile("c.csv")])
        await expect(panel.locator(".diff .add")).to_contain_text("two")
        await panel.get_by_label("From").select_option(label="Start")
        await expect(rows).to_have_count(3)
        await rows.filter(has_text="b.sh").click()
        await expect(panel.locator(".diff", has_text="exit 0")).to_be_visible()
        await panel.get_by_label("Back to files").click()
        await expect(panel.get_by_role("tree")).to_be_visible()
        assert house.complaints == []


async def test_a_folder_and_everything_are_downloaded(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await with_turns(house, page)
        await page.locator(".bar").get_by_label("Files").click()
        folder = page.locator('[data-path="ops"]')
        await folder.focus()
        await page.keyboard.press("Tab")
        async with page.expect_download() as downloading:
            await page.keyboard.press("Enter")
        download = await downloading.value
        assert download.suggested_filename == "ops.zip"
        assert members(Path(await download.path())) == {"b.sh": "exit 0\n"}
        await expect(folder).to_have_attribute("aria-expanded", "false")
        async with page.expect_download() as downloading:
            await page.locator(".ftool").get_by_role("link", name="Download all").click()
        everything = members(Path(await (await downloading.value).path()))
        assert everything == {"a.txt": "one\ntwo\n", "c.csv": "x,y\n1,2\n", "ops/b.sh": "exit 0\n"}
        assert house.complaints == []


async def test_files_of_a_turn_are_cards_under_its_answer(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await with_turns(house, page)
        await page.set_viewport_size({"width": 1440, "height": 900})
        [folder] = (house.home / "workspaces").iterdir()
        for _ in range(2):  # as the turn ran; then after a reload, when the user had changed files
            cards = page.locator("article").last.locator(".fc")
            await expect(cards).to_have_text([re.compile(r"a\.txt.*\+1"), re.compile(r"c\.csv.*new")])
            await expect(cards.first.locator("pre .add")).to_have_text("+ two")
            await expect(page.locator(".fset header").last).to_contain_text("1 new, 1 changed")
            (folder / "mine.txt").write_text("mine\n")
            (folder / "a.txt").write_text("mine\n")
            await page.reload()
        async with page.expect_download() as downloading:
            await page.locator(".fset").last.get_by_role("link", name="Download all").click()
        made = members(Path(await (await downloading.value).path()))
        assert made == {"a.txt": "one\ntwo\n", "c.csv": "x,y\n1,2\n"}
        async with page.expect_download() as downloading:
            await page.get_by_label("Download c.csv").click()
        assert Path(await (await downloading.value).path()).read_text() == "x,y\n1,2\n"
        # What an earlier turn left is shown as it was then.
        await page.locator("article").first.get_by_role("button", name="Open a.txt").click()
        panel = page.get_by_role("complementary", name="Files")
        await expect(panel.locator(".code code")).to_have_text("one")
        await expect(panel.locator(".pv")).to_contain_text("As of Turn 1.")
        await panel.get_by_role("button", name="Show current version").click()
        await expect(panel.locator(".code code")).to_have_text("mine")
        await page.locator(".fset").last.get_by_role("button", name="Compare").click()
        await expect(panel.locator(".chg")).to_have_count(2)
        # The panel comes back as it was left.
        await page.reload()
        await expect(panel.get_by_role("tree")).to_be_visible()
        assert house.complaints == []


async def test_on_a_phone_three_cards_lead_to_a_sheet_with_all_of_them(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        many = [Tool("write_file", {"path": f"part-{n:02}.txt", "content": f"{n}\n"}) for n in range(12)]
        house.provider.on("many", many, ["All written."])
        page = await house.open()
        await page.set_viewport_size({"width": 390, "height": 844})
        await say(page, "write many")
        await expect(page.locator(DONE)).to_have_count(1)
        await expect(page.locator(".fc")).to_have_count(3)
        await expect(page.locator(".fset header")).to_contain_text("12 files")
        assert {
            round((await card.bounding_box() or {})["height"]) for card in await page.locator(".fc").all()
        } == {64}
        await page.get_by_role("button", name="and 9 more").click()
        panel = page.get_by_role("complementary", name="Files")
        await expect(panel.get_by_role("radio", name="Turn")).to_be_checked()
        await expect(panel.get_by_role("treeitem")).to_have_count(12)
        await panel.get_by_role("treeitem").first.click()
        await expect(panel.locator(".code code")).to_have_text("0")
        # A sheet: the session is still in sight above it.
        assert (await panel.bounding_box() or {})["y"] == 36
        await expect(panel.locator(".pvb .btn")).to_have_css("height", "44px")
        assert await serious(page) == []
        await panel.get_by_label("Close").click()
        await expect(panel).to_have_count(0)
        assert house.complaints == []


# Without a folder: on the panel, beside the tree.
DROP = """([folder, name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name));
    const at = document.querySelector(folder ? `[data-path="${folder}"]` : ".ftool");
    at.dispatchEvent(new DragEvent("dragover", { dataTransfer: data, bubbles: true, cancelable: true }));
    at.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


async def test_a_text_is_edited_and_nothing_that_came_meanwhile_is_overwritten(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        folder = await with_files(house, page)
        script = folder / "ops/backup.sh"
        await page.locator(".bar").get_by_label("Files").click()
        await show(page, "ops/backup.sh")
        preview = page.locator(".pv")
        await preview.get_by_label("Edit").click()
        text = preview.get_by_label("Text of the file")
        await expect(text).to_be_focused()
        await text.fill("#!/bin/sh\nexit 0\n")
        await text.press("Control+s")
        await expect(page.locator(".toast")).to_contain_text("backup.sh saved")
        assert script.read_text() == "#!/bin/sh\nexit 0\n"
        await expect(preview.locator(".code code")).to_contain_text("exit 0")

        await preview.get_by_label("Edit").click()
        await text.fill("mine\n")
        script.write_text("theirs\n")
        await preview.get_by_role("button", name="Save").click()
        await expect(preview.get_by_role("alert")).to_contain_text("Nothing was overwritten")
        await expect(text).to_have_value("mine\n")
        await expect(preview.locator(".theirs")).to_have_text("theirs")
        assert script.read_text() == "theirs\n"
        # What is being written survives a look at another file.
        await show(page, "README.md")
        await show(page, "ops/backup.sh")
        await expect(text).to_have_value("mine\n")
        await preview.get_by_role("button", name="Save mine").click()
        await expect(preview.locator(".code code")).to_have_text("mine")
        assert script.read_text() == "mine\n"
        assert house.complaints == []


async def test_on_a_small_screen_the_editor_and_the_newest_version_are_in_view(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.set_viewport_size({"width": 1280, "height": 800})
        folder = await with_files(house, page)
        for number in range(20):
            (folder / f"more{number}.txt").write_text("")
        await page.locator(".bar").get_by_label("Files").click()
        preview = page.locator(".pv")
        await show(page, "more0.txt")
        await expect(preview).to_contain_text("This file is empty.")
        text = preview.get_by_label("Text of the file")
        for number in range(6):
            await preview.get_by_label("Edit", exact=True).click()
            await text.fill(f"{number}\n" * 40)
            await expect(preview.get_by_role("button", name="Save")).to_be_in_viewport(ratio=1)
            await preview.get_by_role("button", name="Save").click()
            await expect(preview.locator(".code code")).to_contain_text(f"{number}\n")
        newest = preview.locator(".hist button").last
        await expect(newest).to_contain_text("now")
        await expect(newest).to_be_in_viewport(ratio=1)
        await expect(newest).to_have_attribute("aria-pressed", "true")

        await preview.get_by_label("Edit", exact=True).click()
        await text.fill("mine\n" * 40)
        (folder / "more0.txt").write_text("theirs\n" * 40)
        await preview.get_by_role("button", name="Save").click()
        await expect(preview.get_by_role("alert")).to_be_in_viewport(ratio=1)
        await expect(preview.get_by_role("button", name="Save mine")).to_be_in_viewport(ratio=1)
        assert house.complaints == []


async def test_a_dropped_file_is_put_into_the_folder(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        folder = await with_files(house, page)
        await page.locator(".bar").get_by_label("Files").click()
        await expect(page.locator('[data-path="ops"]')).to_be_visible()
        await page.evaluate(DROP, ["ops", "skip.txt", "*.thumb"])
        await expect(page.locator('[data-path="ops/skip.txt"]')).to_have_attribute("aria-selected", "true")
        assert (folder / "ops/skip.txt").read_text() == "*.thumb"
        await page.evaluate(DROP, ["", "beside.txt", "in the workspace"])
        await expect(page.locator('[data-path="beside.txt"]')).to_have_attribute("aria-selected", "true")
        assert (folder / "beside.txt").read_text() == "in the workspace"
        # They went into the folder, not into the message.
        await expect(page.locator(".comp .att")).to_have_count(0)
        await page.evaluate(DROP, ["ops", "skip.txt", "another"])
        await expect(page.get_by_role("alert")).to_contain_text("skip.txt already exists.")
        assert (folder / "ops/skip.txt").read_text() == "*.thumb"
        await page.get_by_role("button", name="Keep both").click()
        await expect(page.locator('[data-path="ops/skip (2).txt"]')).to_be_visible()
        assert (folder / "ops/skip (2).txt").read_text() == "another"
        await page.locator('[data-path="README.md"]').click()
        await page.get_by_label("Upload files").last.set_input_files(
            {"name": "README.md", "mimeType": "text/markdown", "buffer": b"# New"}
        )
        await page.get_by_role("button", name="Replace").click()
        await expect(page.locator(".pv").get_by_role("heading", name="New")).to_be_visible()
        assert (folder / "README.md").read_text() == "# New"
        assert house.complaints == []
