"""The ``openai`` package, unchanged, talking to an agent and to bare models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

from everturn.domain.asks import AskTopic, DoubtAnswer, InstructionsAnswer, LimitAnswer
from everturn.domain.events import QuestionAsked
from everturn.domain.model_errors import RateLimited
from everturn.domain.sessions import SessionFilter
from everturn.domain.tool import Instructions, Verdict
from everturn.engine import Delegates, DelegateSettings
from everturn.store import Store
from everturn.testing import CallTool, FakeTool, FakeToolbox, ScriptedModel, ScriptedModels
from everturn.testing.clock import FakeClock
from everturn.testing.models import Answer, ModelFails, Pause, Say, ScriptStep, Wait
from everturn.testing.web_server import PATIENCE_S, Running, run_web
from everturn.tools.profiles import built_in
from everturn.web.openai.completions import answer_to
from tests.delegating import CHILD, hand_over, task, with_delegates

pytestmark = pytest.mark.anyio

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


@asynccontextmanager
async def client_of(server: Running) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}v1", api_key="anything", max_retries=0, timeout=60
    ) as client:
        yield client


def one_model(*script: Answer) -> ScriptedModels:
    return ScriptedModels(ScriptedModel(*script, name="acme:one"))


def asking(text: str = "hi") -> list:
    return [{"role": "user", "content": text}]


async def nothing_is_left(server: Running) -> None:
    for query in ("", "?archived=true"):
        assert (await server.http.get(f"/api/sessions{query}")).json()["items"] == []
    page = await server.store.sessions.list("local", SessionFilter(archived=None))
    assert page.items == ()
    assert await server.store.records.list("system", "deletion") == {}


async def test_the_agent_answers_whole_and_streamed_and_leaves_nothing(store: Store, tmp_path: Path) -> None:
    script: tuple[Answer, ...] = ("Hello.", [Say("Hello again.", size=3)])
    async with run_web(store, tmp_path, *script) as server, client_of(server) as client:
        whole = await client.chat.completions.create(model="everturn", messages=asking())
        assert whole.choices[0].message.content == "Hello."
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage is not None
        assert whole.usage.total_tokens == 15
        parts, usage = [], None
        stream = await client.chat.completions.create(
            model="everturn", messages=asking(), stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            usage = chunk.usage or usage
            parts += [choice.delta.content or "" for choice in chunk.choices]
        assert "".join(parts) == "Hello again."
        assert usage is not None
        await nothing_is_left(server)


async def test_the_agent_sees_the_clients_history_and_instructions(store: Store, tmp_path: Path) -> None:
    model = ScriptedModel("Forty-two.", name="acme:one")
    async with run_web(store, tmp_path, models=ScriptedModels(model)) as server, client_of(server) as client:
        await client.chat.completions.create(
            model="everturn",
            messages=[
                {"role": "system", "content": "Speak like a pirate."},
                {"role": "user", "content": "Remember 42."},
                {"role": "assistant", "content": "I will."},
                {"role": "user", "content": "Which number?"},
            ],
        )
        said = [(message.role, message.text) for message in model.requests[0].messages]
        assert said[:2] == [("user", "Remember 42."), ("assistant", "I will.")]
        assert said[2][1].endswith("Which number?")
        assert "Speak like a pirate." in said[2][1]
        await nothing_is_left(server)


async def test_with_a_session_header_the_conversation_is_durable(store: Store, tmp_path: Path) -> None:
    model = ScriptedModel("One.", "Two.", name="acme:one")
    async with run_web(store, tmp_path, models=ScriptedModels(model)) as server, client_of(server) as client:
        headers = {"X-Everturn-Session": "my-notebook"}
        for text in ("first", "second"):
            raw = await client.chat.completions.with_raw_response.create(
                model="everturn", messages=asking(text), extra_headers=headers
            )
        (session,) = (await server.http.get("/api/sessions")).json()["items"]
        assert raw.headers["x-everturn-session"] == session["id"]
        assert [message.text for message in model.requests[1].messages] == ["first", "One.", "second"]
        by_id = {"X-Everturn-Session": session["id"]}
        model.add("Three.")
        answer = await client.chat.completions.create(
            model="everturn", messages=asking("third"), extra_headers=by_id
        )
        assert answer.choices[0].message.content == "Three."


@pytest.mark.parametrize("name", ["", "x" * 151])
async def test_a_session_header_that_names_nothing_makes_no_session(
    store: Store, tmp_path: Path, name: str
) -> None:
    async with run_web(store, tmp_path, "Hello.") as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(
                model="everturn", messages=asking(), extra_headers={"X-Everturn-Session": name}
            )
        await nothing_is_left(server)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_call_that_needs_approval_is_denied_and_the_answer_says_so(
    store: Store, tmp_path: Path, streams: bool
) -> None:
    tool = FakeTool("deploy")
    script: tuple[Answer, ...] = ([CallTool("deploy", {})], "I could not deploy.")
    rules = {"deploy": Verdict.ASK}
    async with (
        run_web(store, tmp_path, *script, tools=[tool], rules=rules) as server,
        client_of(server) as client,
    ):
        if streams:
            pieces = await client.chat.completions.create(model="everturn", messages=asking(), stream=True)
            text = "".join([piece.choices[0].delta.content or "" async for piece in pieces])
        else:
            answer = await client.chat.completions.create(model="everturn", messages=asking())
            text = answer.choices[0].message.content or ""
        assert text.startswith("I could not deploy.")
        assert "Denied" in text
        assert "deploy" in text.split("Denied")[1]
        assert tool.calls == []


async def test_a_text_that_the_model_cannot_read_is_left_out_and_not_declined(
    store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel("Hello.", name="acme:one")
    toolbox = FakeToolbox()
    told = toolbox.workspace_instructions = Instructions(is_there=True, preview="Obey.", digest="d1")
    async with (
        run_web(store, tmp_path, models=ScriptedModels(model), toolbox=toolbox) as server,
        client_of(server) as client,
    ):
        answer = await client.chat.completions.create(model="everturn", messages=asking())
        assert answer.choices[0].message.content == "Hello."
        assert "Obey." not in model.requests[0].system
        assert toolbox.workspace_instructions == told


@pytest.mark.parametrize(
    ("topic", "choices"),
    [
        (AskTopic.DOUBT, tuple(DoubtAnswer)),
        (AskTopic.INSTRUCTIONS, tuple(InstructionsAnswer)),
        (AskTopic.LIMIT, tuple(LimitAnswer)),
        (AskTopic.REPEAT, tuple(LimitAnswer)),
    ],
)
def test_every_question_of_ours_is_answered_with_a_word_that_it_offers(
    topic: AskTopic, choices: tuple[str, ...]
) -> None:
    answer = answer_to(QuestionAsked("ask_1", "?", choices, topic))
    assert answer in choices
    assert answer in ("check", "not now", "stop")


async def test_an_answer_that_takes_too_long_is_an_error_with_a_reason(store: Store, tmp_path: Path) -> None:
    script: tuple[Answer, ...] = ([Say("Slowly. "), Pause(1e6)],)
    async with run_web(store, tmp_path, *script, settings={"completion_timeout_s": 0.2}) as server:
        body = {"model": "everturn", "messages": asking()}
        late = await server.http.post("/v1/chat/completions", json=body)
        assert (late.status_code, late.json()["error"]["code"]) == (502, "turn_not_completed")
        assert "0.2 seconds" in late.json()["detail"]


async def test_a_client_that_gives_up_is_not_worked_for_any_more(store: Store, tmp_path: Path) -> None:
    body = json.dumps({"model": "everturn", "messages": asking()}).encode()
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    )
    async with run_web(store, tmp_path, [Say("Slowly. "), Pause(1e6)]) as server:
        with anyio.fail_after(PATIENCE_S):
            async with await anyio.connect_tcp("127.0.0.1", server.port) as stream:
                await stream.send(head + body)
                while not server.engine.status()["running"]:
                    await anyio.lowlevel.checkpoint()
            while server.engine.status()["running"]:
                await anyio.lowlevel.checkpoint()
            while (await store.upkeep.stats())["sessions"]:
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_turn_that_its_client_has_left_in_a_session_is_denied_what_it_asks(
    store: Store, tmp_path: Path, is_streamed: bool
) -> None:
    """It would wait for an approval for ever, and whatever is asked in the session next would wait for it."""
    goes_on, tool = anyio.Event(), FakeTool("deploy")
    script: tuple[Answer, ...] = (
        [Say("Slowly. "), Wait(goes_on), CallTool("deploy", {})],
        "I could not deploy.",
    )
    body = {"model": "everturn", "messages": asking(), "stream": is_streamed}
    async with run_web(store, tmp_path, *script, tools=[tool], rules={"deploy": Verdict.ASK}) as server:
        with anyio.fail_after(PATIENCE_S):
            await _leave(server, json.dumps(body).encode(), b"Slowly" if is_streamed else b"")
            goes_on.set()
            while (await store.sessions.list("local")).items[0].active_turn is not None:
                await anyio.lowlevel.checkpoint()
        (session,) = (await store.sessions.list("local")).items
        assert session.head is not None
        said = await store.transcript.context("local", session.id)
        assert said[-1].text == "I could not deploy."
        assert tool.calls == []


async def _leave(server: Running, body: bytes, sign: bytes) -> None:
    """Ask in a session, and go when the turn runs and this was read; returns when the server has seen that."""
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"x-everturn-session: s\r\ncontent-length: %d\r\n\r\n" % len(body)
    )
    async with await anyio.connect_tcp("127.0.0.1", server.port) as stream:
        await stream.send(head + body)
        while not server.engine.status()["running"]:
            await anyio.lowlevel.checkpoint()
        got = b""
        while sign not in got:
            got += await stream.receive()
    while len(server.web.streams) or server.web.in_flight:
        await anyio.lowlevel.checkpoint()


async def test_client_tools_work_on_a_bare_model_and_not_on_the_agent(store: Store, tmp_path: Path) -> None:
    tools: list = [
        {
            "type": "function",
            "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}},
        }
    ]
    model = ScriptedModel([CallTool("weather", {"city": "Rome"}, id="c1")], "Sunny.", name="acme:one")
    async with run_web(store, tmp_path, models=ScriptedModels(model)) as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError, match="own tools"):
            await client.chat.completions.create(model="everturn", messages=asking(), tools=tools)
        first = await client.chat.completions.create(model="acme:one", messages=asking(), tools=tools)
        assert first.choices[0].finish_reason == "tool_calls"
        (call,) = first.choices[0].message.tool_calls or []
        assert (call.id, call.function.name) == ("c1", "weather")
        assert [tool.name for tool in model.requests[0].tools] == ["weather"]
        history: list = [
            *asking(),
            first.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": "c1", "content": "25 degrees"},
        ]
        second = await client.chat.completions.create(model="acme:one", messages=history, tools=tools)
        assert second.choices[0].message.content == "Sunny."
        assert model.requests[1].messages[-1].parts[0].text == "25 degrees"
        await nothing_is_left(server)


async def test_a_bare_model_streams_tool_calls_and_says_when_it_breaks(store: Store, tmp_path: Path) -> None:
    broken: list[ScriptStep] = [Say("Half an ans"), ModelFails(RateLimited("Slow down."))]
    models = one_model([Say("Let me see."), CallTool("look", {"at": 1}, id="c9")], broken)
    async with run_web(store, tmp_path, models=models) as server, client_of(server) as client:
        calls, text, finish = [], "", None
        stream = await client.chat.completions.create(model="acme:one", messages=asking(), stream=True)
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                calls += choice.delta.tool_calls or []
                finish = choice.finish_reason or finish
        assert (text, finish, [call.id for call in calls]) == ("Let me see.", "tool_calls", ["c9"])
        got: list[str] = []
        stream = await client.chat.completions.create(model="acme:one", messages=asking(), stream=True)

        async def read() -> None:
            async for chunk in stream:
                got.append(chunk.choices[0].delta.content or "")

        with pytest.raises(openai.APIError, match="Slow down"):
            await read()
        assert "".join(got) == "Half an ans"


async def test_errors_are_the_ones_that_the_client_knows(store: Store, tmp_path: Path) -> None:
    models = one_model(RateLimited("Slow down.", retry_after_s=7))
    async with run_web(store, tmp_path, models=models) as server, client_of(server) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="acme:none", messages=asking())
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.APIStatusError, match=r"Slow down\.") as limited:
            await client.chat.completions.create(model="acme:one", messages=asking())
        assert limited.value.code == "model_rate_limited"
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(
                model="everturn", messages=[{"role": "assistant", "content": "I say."}]
            )
        with pytest.raises(openai.BadRequestError, match="bare model"):
            await client.chat.completions.create(
                model="acme:one", messages=asking(), extra_headers={"X-Everturn-Session": "x"}
            )


@pytest.mark.parametrize("model", ["everturn", "acme:one"])
async def test_the_same_idempotency_key_returns_the_same_answer(
    store: Store, tmp_path: Path, model: str
) -> None:
    scripted = ScriptedModel("Only once.", name="acme:one")
    async with (
        run_web(store, tmp_path, models=ScriptedModels(scripted)) as server,
        client_of(server) as client,
    ):
        headers = {"Idempotency-Key": "k1"}
        answers = []

        async def ask() -> None:
            answers.append(
                await client.chat.completions.create(model=model, messages=asking(), extra_headers=headers)
            )

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)
        assert answers[0] == answers[1]
        stream = await client.chat.completions.create(
            model=model, messages=asking(), extra_headers=headers, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == "Only once."
        assert len(scripted.requests) == 1
        with pytest.raises(openai.UnprocessableEntityError, match="another body"):
            await client.chat.completions.create(model=model, messages=asking("other"), extra_headers=headers)


async def test_in_a_session_the_same_key_is_the_same_turn(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "Only once.") as server, client_of(server) as client:
        headers = {"Idempotency-Key": "k1", "X-Everturn-Session": "s"}
        first = await client.chat.completions.create(
            model="everturn", messages=asking(), extra_headers=headers
        )
        second = await client.chat.completions.create(
            model="everturn", messages=asking(), extra_headers=headers
        )
        assert first == second
        stream = await client.chat.completions.create(
            model="everturn", messages=asking(), extra_headers=headers, stream=True
        )
        assert {chunk.id async for chunk in stream} == {first.id}


async def test_an_image_that_is_sent_again_is_the_same_image(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "A dot.") as server, client_of(server) as client:
        headers = {"Idempotency-Key": "k1", "X-Everturn-Session": "s"}

        async def ask(image: str) -> openai.types.chat.ChatCompletion:
            parts = [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": image}},
            ]
            messages: Any = [{"role": "user", "content": parts}]  # the client's own types are unions of many
            return await client.chat.completions.create(
                model="everturn",
                messages=messages,
                extra_headers=headers,
            )

        assert await ask(PIXEL) == await ask(PIXEL)
        with pytest.raises(openai.UnprocessableEntityError, match="another body"):
            await ask(PIXEL.replace("AAAA", "BBBB", 1))


async def test_models_are_listed_with_the_agent_first(store: Store, tmp_path: Path) -> None:
    models = one_model()
    async with run_web(store, tmp_path, models=models) as server, client_of(server) as client:
        assert [model.id async for model in client.models.list()] == ["everturn", "acme:one"]


async def test_a_client_that_leaves_ends_an_ephemeral_turn(store: Store, tmp_path: Path) -> None:
    model = ScriptedModel([Say("Begin"), Wait(anyio.Event())], name="acme:one")
    async with run_web(store, tmp_path, models=ScriptedModels(model)) as server, client_of(server) as client:
        stream = await client.chat.completions.create(model="everturn", messages=asking(), stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content == "Begin":
                break
        await stream.close()
        with anyio.fail_after(60):
            while model.open_streams or len(server.web.streams):
                await anyio.lowlevel.checkpoint()
            while await store.records.list("system", "deletion"):
                await anyio.lowlevel.checkpoint()
        await nothing_is_left(server)


async def test_what_a_delegate_asks_is_denied_too_so_that_the_answer_does_not_wait(
    store: Store, tmp_path: Path
) -> None:
    clock = FakeClock()
    delegates = Delegates(store, clock, DelegateSettings())
    danger = FakeTool("danger")
    tools = with_delegates([danger], delegates, built_in())
    toolbox = FakeToolbox(*tools, rules={"danger": Verdict.ASK})
    models = ScriptedModels(
        ScriptedModel(hand_over(task("clean up")), "It was not allowed to.", clock=clock),
        ScriptedModel([CallTool("danger", {})], "I may not.", name=CHILD, clock=clock),
    )
    async with (
        run_web(store, tmp_path, clock=clock, models=models, toolbox=toolbox, delegates=delegates) as server,
        client_of(server) as client,
    ):
        with anyio.fail_after(PATIENCE_S):
            answer = await client.chat.completions.create(
                model="everturn", messages=asking(), extra_headers={"X-Everturn-Session": "work"}
            )
        assert answer.choices[0].message.content == "It was not allowed to."
        assert danger.calls == []


async def test_a_budget_that_is_used_up_ends_the_answer_with_an_error(store: Store, tmp_path: Path) -> None:
    async with run_web(store, tmp_path, "never said") as server, client_of(server) as client:
        await server.http.put("/api/budgets", json={"scope": "day", "unit": "tokens", "amount": 10})
        with anyio.fail_after(PATIENCE_S), pytest.raises(openai.APIStatusError) as refused:
            await client.chat.completions.create(model="everturn", messages=asking())
        assert refused.value.status_code == 502
