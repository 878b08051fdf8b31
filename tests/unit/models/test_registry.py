from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.domain.model import ProgressChunk
from everturn.domain.model_errors import ModelKeyMissing, ModelUnknown
from everturn.models import Keys, ModelRegistry, parse_settings
from everturn.models.anthropic_wire import AnthropicModel
from everturn.models.local import POCKET_SPEC
from everturn.models.small_models.text_calls import TextCalls
from everturn.models.weights import OnProgress, Shelf
from everturn.store import SecretsFile
from everturn.testing.wires import WireAnswer, WireServer, anthropic_answer, openai_answer, refuse
from tests.unit.models.samples import TOOLS, asks, collect, finish_of, text_of
from tests.unit.models.test_discovery import be_llamacpp, be_ollama

pytestmark = pytest.mark.anyio

KEY = "planted-key-0123456789"
NOWHERE = {
    "OLLAMA_BASE_URL": "http://127.0.0.1:9/v1",
    "LMSTUDIO_BASE_URL": "http://127.0.0.1:9/v1",
    "LLAMACPP_BASE_URL": "http://127.0.0.1:9/v1",
    "VLLM_BASE_URL": "http://127.0.0.1:9/v1",
}


async def no_download(requirement: str, folder: Path, on_progress: OnProgress) -> Path:
    raise AssertionError("nothing is fetched here")


@asynccontextmanager
async def registry(
    tmp_path: Path,
    table: dict[str, Any] | None = None,
    default: str | None = None,
    keys: dict[str, str] | None = None,
    **environ: str,
) -> AsyncIterator[ModelRegistry]:
    variables = {**NOWHERE, **environ}
    stored = Keys(SecretsFile(tmp_path), variables)
    for provider, key in (keys or {}).items():
        await stored.put(provider, key)
    opened = ModelRegistry(
        parse_settings(table or {}),
        stored,
        SystemClock(),
        variables,
        Shelf(tmp_path / "models", no_download),
        default=default,
    )
    async with opened:
        yield opened


# --- the default -------------------------------------------------------------------------------------


async def test_with_nothing_at_all_the_pocket_model_is_the_default(tmp_path: Path) -> None:
    async with registry(tmp_path) as models:
        assert models.default == POCKET_SPEC.name
        model = await models.get(None)
        assert model.abilities.is_small
        assert not model.abilities.tools
    assert not (tmp_path / "models").exists()  # and nothing was fetched for knowing that


async def test_a_local_server_comes_before_the_pocket_model(tmp_path: Path, server: WireServer) -> None:
    be_ollama(server)
    async with registry(tmp_path, OLLAMA_BASE_URL=server.url + "/v1") as models:
        assert models.default == "ollama:llama3.2:3b"
        model = await models.get(None)
        assert model.name == "ollama:llama3.2:3b"
        assert model.abilities.images
        assert model.abilities.context_tokens == 4096


async def test_a_key_comes_before_a_local_server(tmp_path: Path, server: WireServer) -> None:
    be_ollama(server)
    async with registry(tmp_path, OLLAMA_BASE_URL=server.url + "/v1", ANTHROPIC_API_KEY=KEY) as models:
        assert models.default.startswith("anthropic:")


async def test_what_the_user_names_comes_first(tmp_path: Path) -> None:
    async with registry(tmp_path, default="coder", ANTHROPIC_API_KEY=KEY) as models:
        assert models.default == "coder:qwen2.5-coder-1.5b"
        assert (await models.get(None)).name == models.default


async def test_an_address_without_a_model_takes_what_is_served_there(
    tmp_path: Path, server: WireServer
) -> None:
    server.route("/v1/models", {"data": [{"id": "served-model"}]})
    async with registry(tmp_path, OPENAI_BASE_URL=server.url + "/v1", OPENAI_API_KEY=KEY) as models:
        assert models.default == "openai:served-model"
        server.play(WireAnswer(openai_answer(["hi"])))
        assert text_of(await collect(await models.get(None), asks(output_tokens_max=5))) == "hi"
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        assert server.requests[-1].json["max_tokens"] == 5  # the plain wire, not OpenAI's own


async def test_what_a_server_does_not_take_is_known_to_the_next_step(
    tmp_path: Path, server: WireServer
) -> None:
    async with registry(tmp_path, OPENAI_BASE_URL=server.url + "/v1", OPENAI_API_KEY=KEY) as models:
        server.play(
            refuse(400, {"error": {"message": "this model does not support tools"}}),
            *[WireAnswer(openai_answer(["hi"]))] * 3,
        )
        for _ in range(2):
            await collect(await models.get("openai:m"), asks(tools=TOOLS))
        models.forget("openai")  # the key or the address is another now
        await collect(await models.get("openai:m"), asks(tools=TOOLS))
        asked = [one.json for one in server.requests if one.method == "POST"]
        assert ["tools" in one for one in asked] == [True, False, False, True]


async def test_a_stored_key_changes_the_default_at_once(tmp_path: Path) -> None:
    async with registry(tmp_path) as models:
        await Keys(SecretsFile(tmp_path), {}).put("openai", KEY)
        assert models.default == "openai:gpt-5-mini"


# --- finding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pocket", "pocket:smollm2-135m", "local:pocket", " pocket "])
async def test_the_ways_to_write_pocket(tmp_path: Path, name: str) -> None:
    async with registry(tmp_path) as models:
        assert (await models.get(name)).name == "pocket:smollm2-135m"


@pytest.mark.parametrize("name", ["nope:x", "gpt-5", ":x", "openai/gpt"])
async def test_unknown_names_say_what_is_possible(tmp_path: Path, name: str) -> None:
    async with registry(tmp_path) as models:
        with pytest.raises(ModelUnknown) as caught:
            await models.get(name)
        assert "pocket" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:x", "OPENAI_API_KEY"),
        ("anthropic:x", "ANTHROPIC_API_KEY"),
        ("openrouter:a/b", "OPENROUTER_API_KEY"),
    ],
)
async def test_a_missing_key_says_where_to_put_it(tmp_path: Path, name: str, variable: str) -> None:
    async with registry(tmp_path) as models:
        with pytest.raises(ModelKeyMissing) as caught:
            await models.get(name)
        assert variable in caught.value.hint


async def test_the_anthropic_wire_by_name(tmp_path: Path, server: WireServer) -> None:
    async with registry(tmp_path, ANTHROPIC_BASE_URL=server.url, keys={"anthropic": KEY}) as models:
        model = await models.get("anthropic:claude-sonnet-4-5")
        assert isinstance(model, AnthropicModel)
        assert model.abilities.continues
        assert not (await models.get("anthropic:claude-opus-4-7")).abilities.continues
        server.play(WireAnswer(anthropic_answer(["hi"])))
        assert text_of(await collect(model, asks())) == "hi"
        assert server.requests[-1].headers["x-api-key"] == KEY


async def test_a_provider_of_the_users_own(tmp_path: Path, server: WireServer) -> None:
    table = {
        "providers": {
            "work": {
                "base_url": server.url + "/v1/",
                "key_env": "WORK_KEY",
                "headers": {"x-team": "a"},
                "continues_by": "flag",
            }
        },
        "settings": {
            "work:big": {"context_tokens": 1000, "images": True, "tools": False, "extra": {"seed": 7}}
        },
    }
    async with registry(tmp_path, table, WORK_KEY=KEY) as models:
        model = await models.get("work:big")
        assert model.abilities.context_tokens == 1000
        assert model.abilities.images
        assert model.abilities.continues
        server.play(WireAnswer(openai_answer(["hi"])))
        await collect(model, asks(prefix="so ", tools=TOOLS))
    sent = server.requests[-1]
    assert sent.path == "/v1/chat/completions"
    assert (sent.headers["authorization"], sent.headers["x-team"]) == (f"Bearer {KEY}", "a")
    assert sent.json["seed"] == 7
    assert sent.json["messages"][-1] == {"role": "assistant", "content": "so ", "prefix": True}
    assert "tools" not in sent.json


async def test_a_provider_of_the_users_own_without_its_key(tmp_path: Path) -> None:
    table = {"providers": {"work": {"base_url": "http://127.0.0.1:9/v1", "key_env": "WORK_KEY"}}}
    async with registry(tmp_path, table) as models:
        with pytest.raises(ModelKeyMissing, match="work"):
            await models.get("work:x")


async def test_calls_in_text_for_any_model(tmp_path: Path, server: WireServer) -> None:
    table = {"settings": {"vllm:m": {"calls_in_text": True}}}
    async with registry(tmp_path, table, VLLM_BASE_URL=server.url + "/v1") as models:
        model = await models.get("vllm:m")
        assert isinstance(model, TextCalls)
        server.play(WireAnswer(openai_answer(['{"name": "add", "arguments": {}}'])))
        assert finish_of(await collect(model, asks(tools=TOOLS))).calls[0].name == "add"


async def test_servers_say_what_their_models_can(tmp_path: Path, server: WireServer) -> None:
    be_llamacpp(server)
    async with registry(tmp_path, LLAMACPP_BASE_URL=server.url + "/v1") as models:
        model = await models.get("llamacpp")  # named without a model: the one that runs
        assert model.name == "llamacpp:some.gguf"
        assert model.abilities.context_tokens == 8192
        assert model.abilities.continues
        assert not model.abilities.tools


async def test_vllm_and_openrouter_say_it_in_their_lists(tmp_path: Path, server: WireServer) -> None:
    entry = {
        "id": "a/b",
        "context_length": 9000,
        "architecture": {"input_modalities": ["text", "image"]},
        "supported_parameters": ["temperature"],
    }
    server.route("/v1/models", {"data": [entry, {"id": "served", "max_model_len": 2048}]})
    async with registry(
        tmp_path,
        OPENROUTER_BASE_URL=server.url + "/v1",
        VLLM_BASE_URL=server.url + "/v1",
        OPENROUTER_API_KEY=KEY,
    ) as models:
        routed = await models.get("openrouter:a/b")
        assert (routed.abilities.context_tokens, routed.abilities.images, routed.abilities.tools) == (
            9000,
            True,
            False,
        )
        assert (await models.get("vllm:served")).abilities.context_tokens == 2048


async def test_thinking_and_going_on_exclude_each_other(tmp_path: Path) -> None:
    table = {"settings": {"anthropic:claude-sonnet-4-5": {"reasoning": True}}}
    async with registry(tmp_path, table, ANTHROPIC_API_KEY=KEY) as models:
        model = await models.get("anthropic:claude-sonnet-4-5")
        assert model.abilities.reasoning
        assert not model.abilities.continues
        assert isinstance(model, AnthropicModel)
        assert "thinking" in json.loads(model.body(asks()))


# --- listing and trying ------------------------------------------------------------------------------


async def test_the_list_says_what_is_ready_and_what_is_missing(tmp_path: Path, server: WireServer) -> None:
    be_ollama(server)
    server.route("/v1/models", {"data": [{"id": "m2"}, {"id": "m1"}]})
    table = {"providers": {"work": {"base_url": server.url + "/v1"}}}
    async with registry(tmp_path, table, OLLAMA_BASE_URL=server.url + "/v1", default="work:m1") as models:
        states = {state.name: state for state in await models.list()}
    assert states["anthropic:claude-sonnet-4-5"].state == "needs_key"
    assert "ANTHROPIC_API_KEY" in states["anthropic:claude-sonnet-4-5"].note
    assert states["ollama:qwen3:8b"].state == "ready"
    assert states["work:m1"].state == "ready"
    assert [name for name, state in states.items() if state.is_default] == ["work:m1"]
    assert states["pocket:smollm2-135m"].state == "not_fetched"
    assert states["pocket:smollm2-135m"].size == 98_362_432
    assert states["coder:qwen2.5-coder-1.5b"].state == "not_fetched"


async def test_trying_a_model(tmp_path: Path, server: WireServer) -> None:
    server.route("/v1/models", {"data": [{"id": "m"}]})
    async with registry(tmp_path, VLLM_BASE_URL=server.url + "/v1", VLLM_API_KEY=KEY) as models:
        server.play(
            WireAnswer(openai_answer(["Hello", "!"], prompt_tokens=3)),
            refuse(401, {"error": {"message": f"bad {KEY}"}}),
        )
        good = await models.test("vllm:m")
        assert (good.is_ok, good.text, good.usage.input_tokens) == (True, "Hello!", 3)
        assert good.first_token_ms is not None
        bad = await models.test("vllm:m")
        assert (bad.is_ok, bad.code) == (False, "model_refused")
        assert KEY not in repr(bad)
        assert bad.hint
        assert (await models.test("nope:x")).code == "model_unknown"


async def test_trying_a_key(tmp_path: Path, server: WireServer) -> None:
    async with registry(tmp_path, OPENAI_BASE_URL=server.url + "/v1", default="pocket") as models:
        assert (await models.test_key("openai")).code == "model_key_missing"
        server.play(refuse(200, {"data": []}), refuse(401, {"error": f"wrong: {KEY}"}), refuse(500, {}))
        assert (await models.test_key("openai", KEY)).is_ok
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        refused = await models.test_key("openai", KEY)
        assert (refused.is_ok, refused.code) == (False, "model_refused")
        assert KEY not in repr(refused)
        assert (await models.test_key("openai", KEY)).code == "model_trouble"
        assert models.key_state("openai") is None
        await Keys(SecretsFile(tmp_path), {}).put("openai", KEY)
        assert models.key_state("openai") == "file"
        with pytest.raises(ModelUnknown):
            await models.test_key("unknown", KEY)


async def test_pulling_only_what_can_be_pulled(tmp_path: Path) -> None:
    async with registry(tmp_path) as models:
        with pytest.raises(ModelUnknown, match="nothing to download"):
            await anext(models.pull("openai:x"))


async def test_pulling_what_is_there_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with (tmp_path / "models" / POCKET_SPEC.weights.file).open("wb") as file:
        file.truncate(POCKET_SPEC.weights.size)
    async with registry(tmp_path) as models:
        assert [chunk async for chunk in models.pull("pocket") if isinstance(chunk, ProgressChunk)] == []
        states = {state.name: state.state for state in await models.list()}
        assert states["pocket:smollm2-135m"] == "ready"


async def test_what_goes_wrong_inside_keeps_its_type(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with registry(tmp_path):
            raise ZeroDivisionError


# --- settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"providers": {"work": {"base_urll": "http://x"}}}, "models.providers.work.base_urll"),
        ({"providers": {"work": {"base_url": "x"}}}, "models.providers.work.base_url"),
        ({"providers": {"Wo rk": {"base_url": "http://x"}}}, "models.providers.Wo rk"),
        ({"settings": {"a:b": {"context_tokens": "many"}}}, "models.settings.a:b.context_tokens"),
        ({"nonsense": 1}, "models.nonsense"),
        ({"providers": 1}, "models.providers"),
    ],
)
def test_mistakes_in_the_configuration_name_their_key(table: dict[str, Any], key: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_settings(table)
    assert key in str(caught.value)


async def test_a_rejected_key_is_reported_with_a_message(tmp_path: Path, server: WireServer) -> None:
    said = f"Incorrect API key provided: {KEY}. You can find your API key at https://platform.example."
    async with registry(tmp_path, OPENAI_BASE_URL=server.url + "/v1", default="pocket") as models:
        server.play(
            refuse(401, {"error": {"message": said, "type": "invalid_request_error"}}),
            refuse(403, {}),
        )
        assert (
            await models.test_key("openai", KEY)
        ).problem == "OpenAI rejected this key: Incorrect API key."
        assert (await models.test_key("openai", KEY)).problem == "OpenAI rejected this key."
    async with registry(tmp_path, OPENAI_BASE_URL="http://127.0.0.1:9/v1", default="pocket") as models:
        away = await models.test_key("openai", KEY)
        assert (away.problem, away.hint) == ("Could not reach OpenAI.", "Check the connection.")


async def test_the_first_model_of_a_list_is_not_taken_for_one_that_chats(
    tmp_path: Path, server: WireServer
) -> None:
    names = ("babbage-002", "gpt-5-mini", "text-embedding-3-small", "whisper-1")
    server.route("/v1/models", {"data": [{"id": name} for name in names]})
    await Keys(SecretsFile(tmp_path), {}).put("openai", KEY)
    async with registry(tmp_path, OPENAI_BASE_URL=server.url + "/v1") as models:
        found = {state.name: state for state in await models.list() if state.provider == "openai"}
    assert [name for name, state in found.items() if state.can_chat] == ["openai:gpt-5-mini"]
    assert [name for name, state in found.items() if state.is_suggested] == ["openai:gpt-5-mini"]


async def test_a_server_with_several_models_suggests_none_and_its_default_chats(
    tmp_path: Path, server: WireServer
) -> None:
    names = ("all-minilm", "qwen3:8b", "llama3.2")
    server.route("/v1/models", {"data": [{"id": name} for name in names]})
    await Keys(SecretsFile(tmp_path), {}).put_server("mine", server.url + "/v1", None)
    async with registry(tmp_path) as models:
        found = [state for state in await models.list() if state.provider == "mine"]
        assert not any(state.is_suggested for state in found)
        assert models.default == "mine:llama3.2"
