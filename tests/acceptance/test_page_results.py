"""What tools give back, on the page: pictures with the call that drew them, and files to keep."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.paging import PAGE, Tool, open_house, say
from tests.mcp_service import PIXEL

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DRAW = f"""
import base64
import everturn
from everturn.domain.tool import ToolFile, ToolImage

@everturn.tool(asks=False)
def draw(shape: str) -> everturn.ToolResult:
    "Draw a shape."
    picture = base64.b64decode("{base64.b64encode(PIXEL).decode()}")
    return everturn.ToolResult(
        "one pixel", images=(ToolImage("image/png", picture),), files=(ToolFile("table.csv", "text/csv", b"a,b\\n1,2\\n"),)
    )
"""


async def test_a_picture_is_shown_with_its_call_and_a_file_can_be_kept(data_dir: Path) -> None:
    (data_dir / "tools").mkdir(parents=True)
    (data_dir / "tools/draw.py").write_text(DRAW)
    async with open_house(data_dir) as house:
        house.provider.on("Draw it", [Tool("draw", {"shape": "circle"})], ["Here it is."])
        page = await house.open()
        await say(page, "Draw it")
        await expect(page.locator('article[data-state="completed"]')).to_have_count(1)
        await expect(page.get_by_role("img", name="draw-1.png")).to_be_visible()
        card = page.locator("article .card")
        await expect(card).not_to_contain_text("one pixel")
        await page.get_by_role("button", name="Show the call and its output").click()
        await expect(card).to_contain_text("one pixel")
        await expect(card).to_contain_text("circle")
        async with page.expect_download() as found:
            await page.get_by_role("link", name="table.csv").click()
        kept = await found.value
        assert kept.suggested_filename == "table.csv"
        assert Path(await kept.path()).read_bytes() == b"a,b\n1,2\n"
        assert house.complaints == []
