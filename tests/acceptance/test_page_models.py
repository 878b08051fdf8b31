"""Connecting a model on the page: the right one answers, and errors say what to do."""

from __future__ import annotations

from pathlib import Path

import anyio.lowlevel
import pytest
from playwright.async_api import expect

from everturn.testing.ports import free_port
from everturn.testing.waiting import within
from tests.acceptance.paging import PAGE, open_house, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not built (npm run build in frontend/)"),
]
DONE = 'article[data-state="completed"]'


async def test_a_server_with_several_models_asks_which_one_to_use(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.models = ["all-minilm", "llama3.2", "qwen3"]
        page = await house.open()
        await page.goto(house.url + "#/settings/models")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_role("button", name="Your own server").click()
        await page.get_by_label("Address").fill(house.provider.url)
        await page.get_by_role("button", name="Test").click()
        await expect(page.get_by_text("Connected. Answered in")).to_be_visible()
        await page.get_by_role("button", name="Save and use").click()
        choice = page.get_by_label("Which model should answer?")
        await expect(choice.locator("option").first).to_contain_text("llama3.2")  # not the embedder
        await choice.select_option(label="qwen3")
        await page.locator(".mform").get_by_role("button", name="Use", exact=True).click()
        await expect(choice).to_have_count(0)
        assert (await house.api("GET", "api/settings"))["model"].endswith(":qwen3")


async def test_no_network_is_not_called_a_refusal(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.extra = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{free_port()}"}
        await house.stop()
        await house.start()
        page = await house.open()
        await page.goto(house.url + "#/settings/models")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_role("button", name="Anthropic").click()
        await page.get_by_label("Paste your key").fill("sk-ant-000000000000")
        await page.get_by_role("button", name="Test").click()
        told = page.get_by_role("alert")
        await expect(told).to_have_text(
            "Could not reach Anthropic. Check the connection. The key was not saved."
        )


async def test_a_model_that_cannot_be_reached_has_not_returned_an_error(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.extra["OPENAI_BASE_URL"] = f"http://127.0.0.1:{free_port()}/v1"
        await house.start()
        page = await house.open()
        await say(page, "hello there")
        note = page.locator(".note.bad")
        await expect(note).to_contain_text("The answer failed. openai:test-model cannot be reached.")
        await expect(note).to_contain_text("Check the connection")
        await expect(note).not_to_contain_text("returned an error")


async def test_an_error_that_asks_for_another_model_offers_one(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.models = ["test-model", "other-model"]
        gone = {"error": {"message": "The model `test-model` does not exist", "code": "model_not_found"}}
        house.provider.refusals = {"test-model": (404, gone)}
        page = await house.open()
        await say(page, "hello there")
        note = page.locator(".note.bad")
        await expect(note).to_contain_text("The model returned an error (404).")
        await expect(note).to_contain_text("does not exist. Choose another model")
        await note.get_by_role("button", name="Choose model").click()
        await page.get_by_role("menuitem", name="other-model").click()
        await expect(page.locator(DONE)).to_have_count(1)
        assert house.provider.asked[-1]["model"] == "other-model"
        await say(page, "and now")  # the session continues with it
        await expect(page.locator(DONE)).to_have_count(2)


async def test_the_picker_offers_models_that_can_chat(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.provider.models = ["test-model", "other-model", "text-embedding-3-small", "dall-e-3"]
        await house.start()
        page = await house.open()
        await page.locator(".comp .pick").click()
        await expect(page.get_by_role("option", name="other-model")).to_be_visible()
        for name in ("text-embedding-3-small", "dall-e-3"):
            await expect(page.get_by_role("option", name=name)).to_have_count(0)


async def test_a_model_is_found_favoured_and_used_with_the_keyboard_alone(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.provider.models = ["test-model", "other-model", "third-model"]
        await house.start()
        page = await house.open()
        button = page.locator(".comp .pick")
        await button.focus()
        await page.keyboard.press("Enter")
        picker = page.get_by_role("dialog", name="Model")
        await expect(picker.get_by_label("Find a model")).to_be_focused()
        await page.keyboard.type("third")
        await expect(picker.get_by_role("listbox").get_by_role("option")).to_have_count(1)
        await page.keyboard.press("Control+d")
        await expect(picker.get_by_label("third-model is a favourite. Remove it")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(picker).to_have_count(0)
        await expect(button).to_be_focused()
        await page.reload()
        await button.click()
        await expect(picker.get_by_role("listbox").get_by_role("option").first).to_contain_text("third-model")
        await page.keyboard.type("other")
        await page.keyboard.press("Enter")
        await expect(picker).to_have_count(0)
        await expect(button).to_contain_text("other-model")
        await say(page, "hello there")
        await expect(page.locator(DONE)).to_have_count(1)
        await say(page, "and again")
        await expect(page.locator(DONE)).to_have_count(2)
        asked = [request["model"] for request in house.provider.asked if "again" in str(request)]
        assert set(asked) == {"other-model"}, "it is the session's"
        assert house.complaints == []


async def test_parameters_are_the_sessions_and_what_a_model_does_not_take_goes(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.provider.models = ["test-model", "gpt-oss-20b"]
        await house.start()
        page = await house.open()
        button, picker = page.locator(".comp .pick"), page.get_by_role("dialog", name="Model")
        await say(page, "hello there")
        await expect(page.locator(DONE)).to_have_count(1)
        await button.click()
        await expect(picker.get_by_text("Reasoning effort")).to_have_count(0)  # this one has none
        await expect(picker.get_by_label("Temperature")).to_have_count(0)  # closed
        await picker.get_by_role("option", name="gpt-oss-20b").click()
        await button.click()
        await picker.get_by_role("radio", name="Low").click()
        await expect(picker.get_by_role("radio", name="Low")).to_have_attribute("aria-checked", "true")
        await picker.get_by_role("button", name="Parameters").click()
        limit = picker.get_by_label("Output limit")
        await limit.focus()
        for _ in range(3):
            await page.keyboard.press("ArrowRight")
        await expect(picker.get_by_text("4k tokens")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(button).to_contain_text("Low")
        (session,) = (await house.api("GET", "api/sessions"))["items"]
        kept: dict[str, object] = {}
        with within("the last change is saved"):
            while kept.get("output_tokens_max") != 4000:
                await anyio.lowlevel.checkpoint()
                kept = (await house.api("GET", f"api/sessions/{session['id']}"))["parameters"]
        assert kept == {"effort": "low", "output_tokens_max": 4000}
        await page.reload()
        await expect(button).to_contain_text("Low")
        await say(page, "with an effort")
        await expect(page.locator(DONE)).to_have_count(2)
        asked = house.provider.asked[-1]
        assert (asked["model"], asked["reasoning_effort"]) == ("gpt-oss-20b", "low")
        assert 4000 in (asked.get("max_tokens"), asked.get("max_completion_tokens"))
        await button.click()
        await expect(picker.get_by_label("Output limit")).to_be_visible()  # open, because it was changed
        await picker.get_by_role("option", name="test-model").click()
        await expect(button).not_to_contain_text("Low")
        assert house.complaints == []


async def test_an_answer_is_asked_again_with_another_model(data_dir: Path) -> None:
    async with open_house(data_dir, starts=False) as house:
        house.provider.models = ["test-model", "other-model"]
        await house.start()
        page = await house.open()
        await say(page, "hello there")
        await expect(page.locator(DONE)).to_have_count(1)
        await page.locator(DONE).hover()
        await page.get_by_label("Retry with another model").click()
        picker = page.get_by_role("dialog", name="Retry with another model")
        await picker.get_by_role("option", name="other-model").click()
        await expect(page.get_by_text("2 of 2")).to_be_visible()
        assert house.provider.asked[-1]["model"] == "other-model"
        assert house.complaints == []


async def test_on_a_small_screen_the_picker_is_a_whole_sheet(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.set_viewport_size({"width": 390, "height": 800})
        await page.locator(".comp .pick").click()
        picker = page.get_by_role("dialog", name="Model")
        await expect(picker).to_be_visible()
        assert await picker.bounding_box() == {"x": 0, "y": 0, "width": 390, "height": 800}
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        await picker.get_by_role("button", name="Close").click()
        await expect(picker).to_have_count(0)


async def test_models_for_other_work_are_apart_in_the_settings(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        house.provider.models = ["test-model", "dall-e-3", "whisper-1"]
        page = await house.open()
        await page.goto(house.url + "#/settings/models")
        pane = page.locator(".pane")
        await expect(pane.get_by_text("test-model").last).to_be_visible()
        others = pane.get_by_text("For images, speech and other work (2)")
        await expect(others).to_be_visible()
        await expect(pane.get_by_text("dall-e-3")).to_be_hidden()
        await others.click()
        row = pane.locator(".srow", has_text="dall-e-3")
        await expect(row.get_by_role("button", name="Use anyway")).to_be_visible()


async def test_each_button_of_narrow_settings_says_where_it_leads(data_dir: Path) -> None:
    async with open_house(data_dir) as house:
        page = await house.open()
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.goto(house.url + "#/settings/skills")
        await page.get_by_role("button", name="New", exact=True).click()
        await expect(page.get_by_role("button", name="Back", exact=True)).to_have_count(1)
        await page.get_by_role("button", name="Back", exact=True).click()
        await expect(page.get_by_role("button", name="New", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Close settings").click()
        await expect(page.locator("[data-composer]")).to_be_visible()
