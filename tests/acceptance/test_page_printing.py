"""A conversation on paper, in a real browser: all of it, and nothing else of the page."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from playwright.async_api import expect

from everturn.domain.messages import AnyPart, Attachment, Call, Message, Reasoning, Result, Role, Text
from everturn.domain.sessions import Session
from everturn.domain.turns import Turn, TurnState
from everturn.store.sessions.documents import FORMAT, VERSION, Document, ExportedFile
from everturn.store.sessions.export_html import html
from tests.acceptance.paging import PAGE, Tool, open_browser, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
AT = 1_794_950_283_000
SESSION = "ses_00000000000000000000000001"
TURNS = 60
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000078000000500800000000f7f0ee550000003c4944415478daedcd310100"
    "000c0220d3da3f82ef1aec8102a44f22168bc562b1582c168bc562b1582c168bc562b1582c168bc562b1582c168bc5e2"
    "6b1c13f1d37122c6d40000000049454e44ae426082"
)
ANSWER = (
    "# What was found\n\nThe **backup** ran, see [the manual](https://example.org/manual).\n\n"
    "```python\n"
    + "".join(f"value_{n} = compute({n}, also='more than paper is wide')  # {'x' * 60}\n" for n in range(40))
    + "```\n\n| Host | Filesystem | Mounted on | Used percentage | Available | Remarks on this volume |\n"
    "|---|---|---|--:|--:|---|\n"
    + "".join(
        f"| server-{n}.example.org | /dev/mapper/volume-{n} | /srv/storage-{n} | {n} % | 12345678901 | unremarkable |\n"
        for n in range(30)
    )
    + "\n> Quoted at the end.\n"
)
# What the browser does around its dialog, and how much of the conversation is drawn at that moment.
PRINT = """window.print = () => {
  dispatchEvent(new Event("beforeprint"));
  document.documentElement.dataset.drawn = document.querySelectorAll("[data-box]").length;
  dispatchEvent(new Event("afterprint"));
}"""
CUT = """() => [...document.querySelectorAll(".code pre, .md td, .md th, .say")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1)
  .map((one) => one.textContent.slice(0, 80))"""


def conversation() -> Document:
    turns: list[Turn] = []
    messages: list[Message] = []
    for number in range(TURNS):
        before = turns[-1].id if turns else None
        turn = f"trn_{number:026d}"
        turns.append(Turn(turn, SESSION, "own", TurnState.COMPLETED, 0, AT, parent_id=before, ended_at=AT))
        parts: tuple[AnyPart, ...] = (Text(f"Question {number}."),)
        if number == TURNS - 1:
            parts += (Attachment("fil_1", "shot.png", "image/png", len(PICTURE)),)
        messages.append(Message(_name(turn, 0), turn, Role.USER, parts, AT))
        messages += _worked(turn) if number == TURNS - 1 else [_said(turn, 1, f"Answer {number}.\n\n" * 9)]
    return Document(
        format=FORMAT,
        version=VERSION,
        session=Session(SESSION, "own", 1, 1, AT, AT, title="Nightly backup", head=turns[-1].id),
        turns=tuple(turns),
        messages=tuple(messages),
        files=(ExportedFile("fil_1", "shot.png", "image/png", PICTURE),),
    )


def _name(turn: str, ordinal: int) -> str:
    return f"msg_{turn[4:]}-{ordinal:04d}"


def _said(turn: str, ordinal: int, text: str) -> Message:
    return Message(_name(turn, ordinal), turn, Role.ASSISTANT, (Text(text),), AT, ordinal)


def _worked(turn: str) -> list[Message]:
    call = Call("call_0", "terminal", '{"command": "restic check --read-data --verbose"}')
    result = Result("call_0", "terminal", "no errors were found")
    return [
        Message(_name(turn, 1), turn, Role.ASSISTANT, (Reasoning("I look **first**."), call), AT, 1),
        Message(_name(turn, 2), turn, Role.TOOL, (result,), AT, 2),
        _said(turn, 3, ANSWER),
    ]


async def test_print_draws_the_whole_conversation_and_nothing_else(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        sent = msgspec.json.encode(conversation())
        made = await house.api(
            "POST", "api/sessions/import", content=sent, headers={"Content-Type": "application/json"}
        )
        context = await house.context(color_scheme="dark")
        await context.add_init_script(PRINT)
        page = await house.open(f"#/s/{made['id']}", context)
        await expect(page.locator("table")).to_be_visible()
        await page.locator(".bar [aria-haspopup=menu]").click()
        await page.get_by_role("menuitem", name="Print").click()
        await expect(page.locator("html")).to_have_attribute("data-drawn", str(TURNS))
        await page.emulate_media(media="print", color_scheme="dark")
        await page.set_viewport_size({"width": 680, "height": 960})  # A4 without its margins
        for kept in (".bar h1", "table", ".pic", ".say >> nth=-1"):
            await expect(page.locator(kept)).to_be_visible()
        for left_out in (".side", "[data-composer]", ".bar .ib >> nth=0", ".acts2 >> nth=-1"):
            await expect(page.locator(left_out)).to_be_hidden()
        assert await page.evaluate(CUT) == []
        assert await page.evaluate("getComputedStyle(document.body).colorScheme") == "light"
        assert not house.complaints


async def test_an_exported_file_has_footnotes_on_one_line_and_tables_that_run_as_their_words(
    tmp_path: Path,
) -> None:
    said = "It rains[^1] often.\n\n| שם | ערך |\n|---|---|\n| א | 1 |\n\n[^1]: In autumn.\n"
    session = Session(SESSION, "own", 1, 1, AT, AT, title="Weather")
    file = tmp_path / "weather.html"
    file.write_text(html(session, [_said(f"trn_{0:026d}", 1, said)]), encoding="utf-8")
    async with open_browser() as browser:
        page = await (await browser.new_context()).new_page()
        await page.goto(file.as_uri())
        number = await page.locator(".note > sup").bounding_box()
        note = await page.get_by_text("In autumn.").bounding_box()
        assert number is not None
        assert note is not None
        assert abs(number["y"] - note["y"]) < 10, "the number stands before its note, not above it"
        first = await page.get_by_role("columnheader", name="שם").bounding_box()
        second = await page.get_by_role("columnheader", name="ערך").bounding_box()
        assert first is not None
        assert second is not None
        assert first["x"] > second["x"]


async def test_a_long_command_opens_fully(data_dir: Path) -> None:
    command = "\n".join(f"echo line number {number}" for number in range(60))
    async with open_house(data_dir) as house:
        house.provider.on("Run it", [Tool("terminal", {"command": command})], ["It ran."])
        page = await house.open()
        await say(page, "Run it")
        await expect(page.get_by_text("It ran.")).to_be_visible()
        await page.locator("button.line", has_text="echo line number 0").click()
        whole = page.locator(".out", has_text="echo line number 59").first
        await expect(whole).to_be_visible()
        assert await whole.evaluate("one => one.scrollHeight <= one.clientHeight + 1"), "nothing is cut off"
        assert house.complaints == []
