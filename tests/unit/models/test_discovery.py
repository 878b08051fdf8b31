from __future__ import annotations

import httpx2
import pytest

from everturn.domain.model import Abilities
from everturn.models.discovery import Discovery, FoundModel
from everturn.testing.wires import WireAnswer, WireServer, wire_server

pytestmark = pytest.mark.anyio


def be_ollama(server: WireServer, parameters: str = "", running: int | None = None) -> None:
    server.route("/api/tags", {"models": [{"name": "llama3.2:3b"}, {"name": "qwen3:8b"}]})
    server.route(
        "/api/show",
        {
            "capabilities": ["completion", "tools", "vision"],
            "parameters": parameters,
            "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
        },
    )
    server.route("/api/ps", {"models": [{"name": "qwen3:8b", "context_length": running}] if running else []})


def be_llamacpp(server: WireServer) -> None:
    server.route(
        "/props",
        {
            "default_generation_settings": {"n_ctx": 8192},
            "modalities": {"vision": True},
            "chat_template_caps": {"supports_tools": False},
        },
    )
    server.route("/v1/models", {"data": [{"id": "some.gguf"}]})


def be_lmstudio(server: WireServer) -> None:
    server.route(
        "/api/v0/models",
        {
            "data": [
                {"id": "gemma", "type": "vlm", "max_context_length": 32768, "loaded_context_length": 4096},
                {"id": "embed", "type": "embeddings"},
                {"id": "phi", "type": "llm", "max_context_length": 16384, "capabilities": ["tool_use"]},
            ]
        },
    )


async def test_all_three_are_found_with_what_they_say(client: httpx2.AsyncClient) -> None:
    async with wire_server() as ollama, wire_server() as lmstudio, wire_server() as llamacpp:
        be_ollama(ollama)
        be_lmstudio(lmstudio)
        be_llamacpp(llamacpp)
        places = {"ollama": ollama.url, "lmstudio": lmstudio.url, "llamacpp": llamacpp.url}
        found = await Discovery(client, places).find()
    assert [server.provider for server in found] == ["ollama", "lmstudio", "llamacpp"]
    assert found[0].base_url == ollama.url + "/v1"
    assert [model.name for model in found[0].models] == ["llama3.2:3b", "qwen3:8b"]
    assert found[1].models == (
        FoundModel("gemma", Abilities(images=True, context_tokens=4096)),
        FoundModel("phi", Abilities(context_tokens=16384)),
    )
    assert found[2].models == (
        FoundModel("some.gguf", Abilities(tools=False, images=True, continues=True, context_tokens=8192)),
    )


@pytest.mark.parametrize(
    ("parameters", "running", "window"),
    [
        ("", None, 4096),
        ("stop x\nnum_ctx                        16384\n", None, 16384),
        ("num_ctx 16384", 2048, 2048),
    ],
    ids=["its default", "the model's setting", "as it runs"],
)
async def test_ollamas_window_is_the_one_it_uses(
    server: WireServer, client: httpx2.AsyncClient, parameters: str, running: int | None, window: int
) -> None:
    be_ollama(server, parameters, running)
    abilities = await Discovery(client, {"ollama": server.url}).abilities("ollama", "qwen3:8b")
    assert abilities == Abilities(tools=True, images=True, context_tokens=window)


async def test_other_programs_on_the_same_ports_are_not_taken_for_models(client: httpx2.AsyncClient) -> None:
    async with wire_server() as other, wire_server() as page:
        for path in ("/api/tags", "/api/v0/models", "/props"):
            other.route(path, {"hello": "world"})
        page.play(WireAnswer([b"<html>"], headers={"content-type": "text/html"}), WireAnswer(status=404))
        assert await Discovery(client, {"ollama": other.url, "lmstudio": other.url}).find() == ()
        assert await Discovery(client, {"llamacpp": page.url}).find() == ()


async def test_no_server_is_found_at_a_closed_port(client: httpx2.AsyncClient) -> None:
    async with wire_server() as gone:
        address = gone.url
    assert await Discovery(client, {"ollama": address, "llamacpp": address}).find() == ()
    assert await Discovery(client, {"ollama": address}).abilities("ollama", "x") is None
