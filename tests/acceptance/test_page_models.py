"""Connecting a model on the page: the right one answers, and errors say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from everturn.testing.ports import free_port
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
        await expect(page.get_by_role("menuitem", name="other-model")).to_be_visible()
        for name in ("text-embedding-3-small", "dall-e-3"):
            await expect(page.get_by_role("menuitem", name=name)).to_have_count(0)
