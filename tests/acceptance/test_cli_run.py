"""``everturn run`` with files, folders and limits: real processes, a model on a real socket."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from everturn.testing.forks import Fork, Process, open_command, run_command
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    anthropic_block,
    anthropic_end,
    anthropic_start,
    anthropic_text,
    openai_answer,
    openai_call,
    openai_delta,
    refuse,
    sse,
    wire_server,
)
from tests.acceptance.command_line import PATIENCE_S, command, environment

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
QUIET = '[memory]\nprovider = ""\n[engine]\nmakes_titles = false\n'


@pytest.fixture
async def wires(data_dir: Path) -> AsyncIterator[WireServer]:
    (data_dir / "config.toml").write_text(QUIET, encoding="utf-8")
    async with wire_server() as server:
        yield server


def say(text: str) -> WireAnswer:
    return WireAnswer(openai_answer([text]))


def calls(name: str, arguments: dict[str, str]) -> WireAnswer:
    call = openai_call(0, json.dumps(arguments), "c1", name)
    return WireAnswer(sse(call, openai_delta("tool_calls"), b"[DONE]"))


def session_of(done: subprocess.CompletedProcess[str]) -> str:
    return str(json.loads(done.stdout.splitlines()[0])["session_id"])


@pytest.mark.parametrize("sees", [True, False])
async def test_an_image_is_shown_to_a_model_that_sees_and_named_to_one_that_does_not(
    data_dir: Path, wires: WireServer, tmp_path: Path, sees: bool
) -> None:
    table = f'{QUIET}[models.settings."openai:test-model"]\nimages = {str(sees).lower()}\n'
    (data_dir / "config.toml").write_text(table, encoding="utf-8")
    (tmp_path / "cat.png").write_bytes(PNG)
    (tmp_path / "note.txt").write_text("kumquat", encoding="utf-8")
    files = ["--attach", str(tmp_path / "cat.png"), "--attach", str(tmp_path / "note.txt")]
    wires.play(say("A cat."))
    done = await command(data_dir, "run", *files, "What is it?", wires=wires)
    assert (done.returncode, done.stdout) == (0, "A cat.\n"), done.stderr
    content = wires.requests[0].json["messages"][-1]["content"]
    assert "kumquat" in json.dumps(content)
    if sees:
        assert content[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    else:
        assert "cat.png, 48 bytes, an image that this model cannot see" in content


async def test_a_broken_pdf_is_reported_to_the_model_and_not_to_the_terminal(
    data_dir: Path, wires: WireServer, tmp_path: Path
) -> None:
    (tmp_path / "torn.pdf").write_bytes(b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>")
    wires.play(say("It is torn."))
    done = await command(data_dir, "run", "--attach", str(tmp_path / "torn.pdf"), "Read it", wires=wires)
    assert (done.returncode, done.stdout, done.stderr) == (0, "It is torn.\n", "")
    assert (
        "This document could not be read. It is damaged" in wires.requests[0].json["messages"][-1]["content"]
    )


async def test_a_warning_is_logged_as_the_server_logs_it(data_dir: Path, wires: WireServer) -> None:
    (data_dir / "config.toml").write_text(QUIET + "lease_s = 30\n", encoding="utf-8")
    wires.play(say("Hello."))
    done = await command(data_dir, "run", "Hi", wires=wires)
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning: [^\n]*lease_s[^\n]*\n", done.stderr)


async def test_a_file_that_is_too_large_is_refused_before_there_is_a_session(
    data_dir: Path, wires: WireServer, tmp_path: Path
) -> None:
    (data_dir / "config.toml").write_text(QUIET + "[server]\nupload_bytes_max = 10\n", encoding="utf-8")
    (tmp_path / "big.txt").write_bytes(b"x" * 11)
    done = await command(data_dir, "run", "--attach", str(tmp_path / "big.txt"), "Read it", wires=wires)
    assert done.returncode == 1
    assert "larger than 10 bytes" in done.stderr
    assert wires.requests == []


async def test_a_project_s_folder_is_where_the_tools_work(
    data_dir: Path, wires: WireServer, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    wires.play(calls("write_file", {"path": "made.txt", "content": "here"}), say("Made."))
    done = await command(data_dir, "run", "--json", "--project", str(folder), "Make it", wires=wires)
    assert done.returncode == 0, done.stderr
    assert (folder / "made.txt").read_text(encoding="utf-8") == "here"
    again = ["run", "--session", session_of(done), "--project", str(folder), "More"]
    assert (await command(data_dir, *again, wires=wires)).returncode == 2


async def test_a_session_is_compacted_on_demand_with_a_focus(data_dir: Path, wires: WireServer) -> None:
    wires.play(say("One."), say("Two."), say("They counted."), say("Three."))
    first = await command(data_dir, "run", "--json", "Count", wires=wires)
    session = ["--session", session_of(first)]
    assert (await command(data_dir, "run", *session, "Go on", wires=wires)).returncode == 0
    done = await command(data_dir, "run", *session, "--compact", "the numbers", wires=wires)
    assert done.returncode == 0, done.stderr
    assert "Summarised 2 messages" in done.stderr
    assert "Pay special attention to: the numbers" in wires.requests[2].body.decode()
    assert (await command(data_dir, "run", *session, "And now?", wires=wires)).stdout == "Three.\n"
    assert "They counted." in wires.requests[3].body.decode()


async def test_what_was_not_understood_leaves_no_empty_session(data_dir: Path, wires: WireServer) -> None:
    for arguments in (["  "], ["--compact", "x"], ["--attach", str(data_dir / "none"), "x"]):
        assert (await command(data_dir, "run", *arguments, wires=wires)).returncode == 2
    unknown = await command(data_dir, "run", "--profile", "nope", "x", wires=wires)
    assert unknown.returncode == 1
    assert "no profile 'nope'" in unknown.stderr
    assert not (data_dir / "everturn.db").exists()


async def test_a_data_folder_that_cannot_be_made_is_reported_in_a_sentence(wires: WireServer) -> None:
    done = await command(Path("/proc/nowhere"), "run", "Hello", wires=wires)
    assert done.returncode == 1
    assert "The data folder /proc/nowhere could not be made: No such file or directory." in done.stderr
    assert "Choose another folder with --home or EVERTURN_HOME." in done.stderr
    assert "restart" not in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_provider_that_asks_for_a_long_wait_is_reported_instead(
    data_dir: Path, wires: WireServer
) -> None:
    wires.play(refuse(429, {"error": {"message": "quota"}}, retry_after="86400"))
    done = await command(data_dir, "run", "Hello", wires=wires)
    assert done.returncode == 1
    assert "The provider asks to wait 24 hours." in done.stderr


async def test_ctrl_c_stops_the_turn_and_the_exit_code_says_so(data_dir: Path, wires: WireServer) -> None:
    wires.play(WireAnswer(openai_answer(["Once upon"])[:1], ending="hang"))
    async with open_command("run", "A story", environ=environment(data_dir, wires)) as process:
        with anyio.fail_after(PATIENCE_S):
            text = b""
            while b"Once upon" not in text:
                text += await process.stdout.receive()
            process.send_signal(signal.SIGINT)
            await process.wait()
    assert process.returncode == 2


@asynccontextmanager
async def in_mid_answer(data_dir: Path, wires: WireServer) -> AsyncIterator[tuple[Process, str]]:
    """``everturn run`` whose model has said something and then says no more; with the session's id."""
    wires.play(WireAnswer(openai_answer(["Once upon"])[:1], ending="hang"))
    environ = environment(data_dir, wires)
    with anyio.fail_after(PATIENCE_S):
        async with open_command("run", "--json", "A story", environ=environ, reads_errors=True) as process:
            text = b""
            while b"Once upon" not in text:
                text += await process.stdout.receive()
            yield process, str(json.loads(text.splitlines()[0])["session_id"])


def with_grace(data_dir: Path, seconds: float) -> None:
    (data_dir / "config.toml").write_text(f"{QUIET}[server]\ngrace_s = {seconds}\n", encoding="utf-8")


async def test_sigterm_hands_the_turn_over_and_the_next_run_continues_it(
    data_dir: Path, wires: WireServer
) -> None:
    with_grace(data_dir, 0.0)
    async with in_mid_answer(data_dir, wires) as (process, session_id):
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 4
        assert f"run --session {session_id} --resume" in (await process.stderr.receive()).decode()
    wires.play(say("Once upon a time."))
    resumed = await command(data_dir, "run", "--json", "--session", session_id, "--resume", wires=wires)
    assert resumed.returncode == 0, resumed.stderr
    events = [json.loads(line)["event"] for line in resumed.stdout.splitlines()]
    assert (events[0]["kind"], events[0]["reason"]) == ("turn.resumed", "handed_over")
    assert events[-1]["kind"] == "turn.completed"
    nothing = await command(data_dir, "run", "--session", session_id, "--resume", wires=wires)
    assert (nothing.returncode, "no unfinished turn" in nothing.stderr) == (1, True)


async def test_a_second_sigterm_hurries(data_dir: Path, wires: WireServer) -> None:
    with_grace(data_dir, 600.0)
    async with in_mid_answer(data_dir, wires) as (process, session_id):
        process.send_signal(signal.SIGTERM)
        assert b"Waiting 600 seconds for the turn" in await process.stderr.receive()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 4
    wires.play(say("Once upon a time."))
    line = ["run", "--json", "--session", session_id, "--resume"]
    events = (await command(data_dir, *line, wires=wires)).stdout.splitlines()
    assert json.loads(events[0])["event"]["reason"] == "handed_over"


async def test_a_turn_that_ends_in_the_time_it_is_given_ends_as_ever(
    data_dir: Path, wires: WireServer
) -> None:
    with_grace(data_dir, 600.0)
    async with in_mid_answer(data_dir, wires) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert b"600 seconds" in await process.stderr.receive()
        process.send_signal(signal.SIGINT)  # the user stops it, which is an end too
        assert await process.wait() == 2


async def test_resuming_wants_a_session_and_nothing_to_say(data_dir: Path, wires: WireServer) -> None:
    for arguments in (["--resume"], ["--resume", "--session", "ses_x", "Hello"], []):
        assert (await command(data_dir, "run", *arguments, wires=wires)).returncode == 2


async def test_at_the_minutes_limit_the_turn_asks_and_only_a_real_answer_is_taken(
    data_dir: Path, wires: WireServer
) -> None:
    (data_dir / "config.toml").write_text(QUIET + "minutes_max = 0.0001\n", encoding="utf-8")
    wires.play(calls("terminal", {"command": "sleep 0.1"}), say("Slept."))
    alone = await command(data_dir, "run", "--json", "Sleep", wires=wires)
    assert alone.returncode == 3
    assert re.search(r"minutes?\. Shall it go on\?", alone.stderr)
    # A user at a terminal: "y" is no choice, and must not count as "stop".
    (data_dir / "config.toml").write_text(QUIET, encoding="utf-8")
    wires.play(say("Second."))
    text, code = await anyio.to_thread.run_sync(
        on_a_terminal,
        environment(data_dir, wires),
        ["run", "--session", session_of(alone), "And?"],
        ["y", "1"],
    )
    assert "Second." in text
    assert code == 0
    assert len(wires.requests) == 3  # the limited turn continued, then the new one ran


def on_a_terminal(
    environ: dict[str, str], arguments: list[str], answers: list[str]
) -> tuple[str, int | None]:
    """What a terminal shows; each time ``>`` asks, the next answer is typed."""
    master, slave = pty.openpty()
    process = Fork(tuple(arguments), environ | {"TERM": "xterm"}, [slave] * 3)
    os.close(slave)
    text = ""
    waiting = list(answers)
    try:
        while piece := os.read(master, 4096):
            text += piece.decode(errors="replace")
            for _ in range(piece.count(b"  > ")):
                os.write(master, (waiting.pop(0) if waiting else "2").encode() + b"\n")
    except OSError:  # how Linux says that the other side has closed
        pass
    os.close(master)
    return text, process.wait(PATIENCE_S)


async def test_thinking_and_its_call_survive_kill_9_byte_for_byte(data_dir: Path, wires: WireServer) -> None:
    thought = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Append it."},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    call = anthropic_block(
        1,
        {"type": "tool_use", "id": "toolu_1", "name": "terminal", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"command": "echo once >> eff'},
        {"type": "input_json_delta", "partial_json": 'ect.txt"}'},
    )
    half = sse(anthropic_start(), *anthropic_text(0, "The line ", "is th")[:3])
    wires.play(
        WireAnswer(sse(anthropic_start(), *thought, *call, *anthropic_end("tool_use"))),
        WireAnswer(half, ending="hang"),
    )
    environ = environment(data_dir) | {
        "ANTHROPIC_BASE_URL": wires.url,
        "ANTHROPIC_API_KEY": "sk-ant-000000000000",
        "EVERTURN_MODEL": "anthropic:claude-test",
    }
    async with open_command("run", "--json", "Append a line", environ=environ) as process:
        with anyio.fail_after(PATIENCE_S):
            text = b""
            while b"The line" not in text:
                text += await process.stdout.receive()
            process.kill()
            await process.wait()
    session = json.loads(text.splitlines()[0])["session_id"]
    wires.play(
        *(WireAnswer(sse(anthropic_start(), *anthropic_text(0, word), *anthropic_end())) for word in "AB")
    )
    line = ("run", "--session", session, "Thanks")
    done = await anyio.to_thread.run_sync(
        lambda: run_command(*line, environ=environ, stdin="", timeout_s=PATIENCE_S)
    )
    assert done.returncode == 0, done.stderr
    assert wires.requests[1].body == wires.requests[2].body
    said = wires.requests[2].json["messages"][1]["content"]
    assert said[0] == {"type": "thinking", "thinking": "Append it.", "signature": "c2ln"}
    effect = data_dir / "workspaces" / session / "effect.txt"
    assert effect.read_text(encoding="utf-8") == "once\n"


async def test_parameters_of_one_run(data_dir: Path, wires: WireServer) -> None:
    table = f'{QUIET}[models.settings."openai:test-model"]\nefforts = ["low", "high"]\n'
    (data_dir / "config.toml").write_text(table, encoding="utf-8")
    wires.play(say("Done."))
    flags = ["--effort", "low", "--temperature", "0.2", "--output-limit", "400"]
    done = await command(data_dir, "run", *flags, "Go.", wires=wires)
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    sent = wires.requests[0].json
    assert (sent["reasoning_effort"], sent["temperature"], sent["max_tokens"]) == ("low", 0.2, 400)
    refused = await command(data_dir, "run", "--effort", "minimal", "Go.", wires=wires)
    assert refused.returncode != 0
    assert "does not take reasoning effort minimal" in refused.stderr
    assert "Its efforts: low, high." in refused.stderr
    assert len(wires.requests) == 1
