"""``everturn chat`` against the real server in a process of its own, which is killed and comes back."""

from __future__ import annotations

import json
import os
import re
import signal
import termios
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx2
import pytest
from anyio.streams.text import TextReceiveStream

from everturn.testing.forks import Process, open_command
from everturn.testing.ports import free_port
from everturn.testing.wires import (
    WireAnswer,
    WireServer,
    openai_answer,
    openai_call,
    openai_delta,
    sse,
)
from tests.acceptance.command_line import Program, command, environment, program, server

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
_EDITING = "\x1b[?2004h"  # from here on the terminal marks what is pasted: the line can be edited


@asynccontextmanager
async def chatting(environ: dict[str, str], port: int) -> AsyncIterator[Program]:
    async with program(environ, "chat", "--server", f"http://127.0.0.1:{port}") as chat:
        yield chat


async def test_a_conversation_in_the_terminal(data_dir: Path, wires: WireServer) -> None:
    wires.play(
        WireAnswer(openai_answer(["Hello", " there.\u2028And\u0085more."])),
        WireAnswer(openai_answer(["Greeting"])),
        WireAnswer(openai_answer(["Still here."])),
    )
    port = free_port()
    environ = environment(data_dir, wires, PYTHONUNBUFFERED="1", EVERTURN_PORT=str(port))
    # Without --server: the address is that of the settings.
    async with server(environ, port), program(environ, "chat") as chat:
        await chat.type("Hi")
        await chat.until("more.")
        await chat.type("And now?")
        await chat.until("Still here.")
        await chat.leave()
        assert "everturn chat --session ses_" in await chat.rest()


async def test_new_starts_another_session_and_names_the_one_it_leaves(
    data_dir: Path, wires: WireServer
) -> None:
    # The same words for all: the turns, a title, and the question whether the model can extract memories.
    wires.play(*[WireAnswer(openai_answer(["Hello there."])) for _ in range(5)])
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port), chatting(environ, port) as chat:
        await chat.type("Hi")
        await chat.until("Hello there.")
        await chat.type("/new")
        await chat.until("A new session starts")
        listed = await command(data_dir, "sessions")
        assert len(listed.stdout.splitlines()) == 1
        await chat.type("And now?")
        await wires.asked("You keep notes about a user")
        await chat.leave()
        await chat.rest()
        listed = await command(data_dir, "sessions")
        assert len(set(re.findall(r"ses_\w+", listed.stdout))) == 2


async def test_the_server_is_killed_in_mid_answer_and_the_conversation_continues(
    data_dir: Path, wires: WireServer
) -> None:
    first = sse(openai_delta(content="Before the crash. "))
    wires.play(WireAnswer(first, ending="hang"))
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with AsyncExitStack() as stack:
        killed = await stack.enter_async_context(server(environ, port))
        chat = await stack.enter_async_context(chatting(environ, port))
        await chat.type("Tell me")
        await chat.until("Before the crash.")
        killed.process.send_signal(signal.SIGKILL)
        await killed.process.wait()
        await chat.until("Server unreachable")
        wires.play(WireAnswer(openai_answer(["After the crash."])), WireAnswer(openai_answer(["Crash"])))
        await stack.enter_async_context(server(environ, port))
        text = await chat.until("After the crash.")
        assert text.count("Before the crash.") == 1
        await chat.leave()
        await chat.rest()


async def test_an_approval_is_answered_at_the_prompt(data_dir: Path, wires: WireServer) -> None:
    arguments = json.dumps({"command": "$TOOL --version"})
    wires.play(
        WireAnswer(
            sse(
                openai_call(0, arguments, "call_1", "terminal"),
                openai_delta(finish="tool_calls"),
                b"[DONE]",
            )
        ),
        WireAnswer(openai_answer(["Then I will not."])),
        WireAnswer(openai_answer(["Refused"])),
    )
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with (
        server(environ, port),
        program(environ, "chat", "--server", f"http://127.0.0.1:{port}") as chat,
    ):
        await chat.type("Fetch it")
        await chat.until("Run this command?")
        await chat.type("n")
        await chat.until("Then I will not.")
        await chat.leave()
        await chat.rest()


class Terminal:
    """``everturn chat`` on a pseudo-terminal."""

    def __init__(self, process: Process, master: int) -> None:
        self.process = process
        self._master = master
        self.text = ""

    async def until(self, words: str) -> str:
        """Wait for words that come after those waited for before. What came before them is returned."""
        with anyio.fail_after(PATIENCE_S):
            while words not in self.text:
                await anyio.wait_readable(self._master)
                self.text += os.read(self._master, 4096).decode(errors="replace")
        passed, _, self.text = self.text.partition(words)
        return passed

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def type(self, line: str) -> None:
        self.press(line + "\n")

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)


@asynccontextmanager
async def terminal(environ: dict[str, str], port: int, *flags: str) -> AsyncIterator[Terminal]:
    master, slave = os.openpty()
    try:
        line = ("chat", *(flags or ("--plain",)), "--server", f"http://127.0.0.1:{port}")
        async with open_command(*line, environ=environ | {"TERM": "xterm"}, terminal=slave) as process:
            yield Terminal(process, master)
    finally:
        os.close(master)
        os.close(slave)


def wishing(command: str) -> WireAnswer:
    call = openai_call(0, json.dumps({"command": command}), "call_1", "terminal")
    return WireAnswer(sse(call, openai_delta(finish="tool_calls"), b"[DONE]"))


async def test_ctrl_c_takes_an_approval_back_and_other_words_give_none(
    data_dir: Path, wires: WireServer
) -> None:
    wires.play(wishing("$TOOL one"))
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port), terminal(environ, port) as chat:
        await chat.until("> ")
        assert chat.echoes
        chat.type("Run it")
        await chat.until("[n]o ")
        assert chat.echoes
        chat.process.send_signal(signal.SIGINT)
        await chat.until("Stopped.")
        wires.play(wishing("$TOOL two"))
        await chat.until("> ")
        chat.type("Once more")
        await chat.until("[n]o ")
        chat.type("session, or start over?")
        await chat.until("[n]o ")
        wires.play(WireAnswer(openai_answer(["Then not."])))
        chat.type("no")
        await chat.until("denied")
        await chat.until("Then not.")


async def test_a_call_is_changed_before_it_is_allowed(data_dir: Path, wires: WireServer) -> None:
    """Without an editor, on one line; text that is not JSON or does not fit is reported and asked for again."""
    wires.play(wishing("$TOOL one"))
    environ = environment(data_dir, wires, PYTHONUNBUFFERED="1", VISUAL="", EDITOR="")
    port = free_port()
    async with server(environ, port), terminal(environ, port) as chat:
        await chat.until("> ")
        chat.type("Run it")
        await chat.until("[e]dit · [n]o ")
        for given, said in (
            ("echo two", "not a JSON object"),
            ("", "(unchanged)"),
            ('{"command": 7}', "│ 7"),
        ):
            chat.type("e")
            await chat.until("on one line: ")
            chat.type(given)
            await chat.until(said)
            await chat.until("[n]o ")
        chat.type("y")  # the last one: a number is no command
        await chat.until("do not fit")
        await chat.until("[e]dit · [n]o ")
        chat.type("e")
        await chat.until("on one line: ")
        chat.type('{"command": "echo $((20 + 22))"}')
        await chat.until("Allow? [y]es once · [e]dit · [n]o ")
        wires.play(WireAnswer(openai_answer(["It ran."])))
        chat.type("y")
        await chat.until("ok: 42")
        await chat.until("It ran.")
    told = [request for request in wires.requests if b"The user changed the arguments" in request.body]
    assert len(told) == 1


async def test_a_call_is_changed_in_the_editor(data_dir: Path, wires: WireServer, tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    editor.write_text("#!/bin/sh\nsed -i 's/.TOOL one/echo $((6 * 7))/' \"$2\"\n", encoding="utf-8")
    editor.chmod(0o700)
    wires.play(wishing("$TOOL one"))
    environ = environment(data_dir, wires, PYTHONUNBUFFERED="1", VISUAL="", EDITOR=f"'{editor}' --wait")
    port = free_port()
    async with server(environ, port), terminal(environ, port) as chat:
        await chat.until("> ")
        chat.type("Run it")
        await chat.until("[e]dit · [n]o ")
        chat.type("edit")
        await chat.until("6 * 7")
        await chat.until("[n]o ")
        wires.play(WireAnswer(openai_answer(["It ran."])))
        chat.type("y")
        await chat.until("ok: 42")
        await chat.until("It ran.")


async def test_an_answer_waits_for_a_server_that_is_away(data_dir: Path, wires: WireServer) -> None:
    wires.play(wishing("$TOOL one"))
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(server(environ, port))
        chat = await stack.enter_async_context(terminal(environ, port))
        await chat.until("> ")
        chat.type("Run it")
        await chat.until("[n]o ")
        first.process.kill()
        await first.process.wait()
        chat.type("n")
        await chat.until("Server unreachable.")
        wires.play(WireAnswer(openai_answer(["Then not."])))
        await stack.enter_async_context(server(environ, port))
        await chat.until("denied")
        await chat.until("Then not.")


async def test_nothing_is_echoed_into_an_answer(data_dir: Path, wires: WireServer) -> None:
    wires.play(WireAnswer(sse(openai_delta(content="Slowly. ")), ending="hang"))
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port), terminal(environ, port) as chat:
        await chat.until("> ")
        chat.type("Say it")
        await chat.until("Slowly.")
        assert not chat.echoes
        chat.process.send_signal(signal.SIGINT)
        await chat.until("Stopped.")
        await chat.until("> ")
        assert chat.echoes


async def test_without_a_server_it_says_how_to_start_one(data_dir: Path, wires: WireServer) -> None:
    line = ("chat", "--server", f"http://127.0.0.1:{free_port()}")
    async with open_command(*line, environ=environment(data_dir, wires), reads_errors=True) as chat:
        with anyio.fail_after(PATIENCE_S):
            said = "".join([piece async for piece in TextReceiveStream(chat.stderr)])
            assert await chat.wait() == 1
    assert "everturn serve" in said
    assert "Traceback" not in said


async def test_a_session_that_does_not_exist_is_reported_at_once(data_dir: Path, wires: WireServer) -> None:
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port):
        for ident in ("nope", "ses_01ARZ3NDEKTSV4RRFFQ69G5FAV", "../models"):
            done = await command(
                data_dir, "chat", "--server", f"http://127.0.0.1:{port}", "--session", ident, COLUMNS="200"
            )
            assert done.returncode == 2
            assert "everturn sessions" in done.stderr
            assert "Continue" not in done.stdout


async def test_slash_commands_are_not_sent_to_the_model(data_dir: Path, wires: WireServer) -> None:
    wires.play(*[WireAnswer(openai_answer(["Seen."])) for _ in range(4)])
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port), chatting(environ, port) as chat:
        for line in ("/", "/help", "/bogus thing"):
            await chat.type(line)
        await chat.until("There is no command, skill or prompt /bogus; nothing was sent.")
        assert chat.text.count("start a new session") >= 2
        assert wires.requests == []
        await chat.type("//etc/hosts")
        await wires.asked("/etc/hosts")
        await chat.until("Seen.")
        await chat.type(" /proc")
        await wires.asked("/proc")
        await chat.type("/quit")
        assert "everturn chat --session ses_" in await chat.rest()
        assert chat.process.returncode == 0
    assert b"//etc" not in b"".join(request.body for request in wires.requests)


async def test_a_password_set_meanwhile_is_asked_for_and_the_message_is_sent(
    data_dir: Path, wires: WireServer
) -> None:
    wires.play(*[WireAnswer(openai_answer(["Hello there."])) for _ in range(4)])
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    address = f"http://127.0.0.1:{port}"
    async with server(environ, port), terminal(environ, port) as chat, chatting(environ, port) as script:
        await chat.until("> ")
        await script.until("> ")
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S, trust_env=False) as http:
            done = await command(data_dir, "password", stdin="correct horse\ncorrect horse\n")
            assert done.returncode == 0, done.stderr
            with anyio.fail_after(PATIENCE_S):
                while (await http.get("/api/sessions")).status_code != 401:
                    await anyio.lowlevel.checkpoint()
        chat.type("Are you there?")
        await chat.until("Password")
        assert not chat.echoes
        chat.type("wrong horse")
        await chat.until("The password is wrong.")
        await chat.until("Password")
        chat.type("correct horse")
        await chat.until("Hello there.")
        await wires.asked("Are you there?")
        # Where no user can be asked, it says what was not sent and how to continue.
        await script.type("And you?")
        said = await script.rest()
        assert script.process.returncode == 1
        assert "Not sent: And you?" in said


async def test_ctrl_c_at_the_prompt_leaves_at_once(data_dir: Path, wires: WireServer) -> None:
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port), terminal(environ, port) as chat:
        await chat.until("> ")
        chat.process.send_signal(signal.SIGINT)
        with anyio.fail_after(PATIENCE_S):
            assert await chat.process.wait() == 0
        listed = await command(data_dir, "sessions")
        assert "There are no sessions yet." in listed.stdout, "nothing was written: no session is left behind"


async def test_a_session_is_chosen_moved_and_given_files_from_the_prompt(
    data_dir: Path, wires: WireServer, tmp_path: Path
) -> None:
    wires.play(*[WireAnswer(openai_answer([f"Answer {number}."])) for number in range(1, 9)])
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    notes = tmp_path / "notes.txt"
    notes.write_text("the cellar is damp")
    async with server(environ, port), chatting(environ, port) as chat:
        await chat.type(f"/attach {notes}")
        await chat.until("Goes with your next message: notes.txt")
        await chat.type("What is in it?")
        await wires.asked("the cellar is damp")
        await chat.until("Answer")
        await chat.type("/model openai:other-model")
        await chat.until("The next answer is from openai:other-model.")
        await chat.type("/retry")
        await wires.asked('"other-model"')
        await chat.type("/undo")
        await chat.until("Taken back.")
        await chat.type("/redo")
        await chat.until("Brought back.")
        await chat.type("/approve")
        await chat.until("Nothing waits for you.")
        await chat.type("/jobs")
        await chat.until("There are no jobs.")
        await chat.type("/sessions")
        await chat.until("/sessions NUMBER opens one.")
        await chat.type("/new")
        await chat.until("A new session starts")
        await chat.type("/sessions 1")
        await chat.until("Now in ses_")
        await chat.leave()
        assert re.search(r"Now in ses_\w+: \w", await chat.rest()), "its title stands beside the id"


async def test_flags_choose_the_folder_the_model_and_a_file(
    data_dir: Path, wires: WireServer, tmp_path: Path
) -> None:
    wires.play(*[WireAnswer(openai_answer(["Seen."])) for _ in range(3)])
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    project, notes = tmp_path / "site", tmp_path / "notes.txt"
    project.mkdir()
    notes.write_text("the attic is dry")
    flags = ("--project", str(project), "--model", "openai:other-model", "--attach", str(notes))
    address = f"http://127.0.0.1:{port}"
    async with server(environ, port), program(environ, "chat", "--server", address, *flags) as chat:
        await chat.until("notes.txt")
        await chat.type("Look")
        await wires.asked("the attic is dry")
        await chat.until("Seen.")
        await chat.leave()
        ident = re.findall(r"ses_\w+", await chat.rest())[0]
        token = json.loads((await command(data_dir, "sessions", "--json")).stdout)
        assert token["id"] == ident
        both = await command(data_dir, "chat", "--server", address, "--session", ident, "--model", "x")
        assert both.returncode == 2
        assert "/model changes one that exists" in both.stderr


async def test_a_line_is_edited_completed_and_brought_back(data_dir: Path, wires: WireServer) -> None:
    wires.play(*[WireAnswer(openai_answer(["Seen."])) for _ in range(8)])
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port), terminal(environ, port, "--model", "openai:test-model") as chat:
        await chat.until(_EDITING)
        chat.press("wrold\x1b[D\x1b[D\x1b[D\x1b[D\x1b[3~\x1b[Cr\x1b[F")  # the arrows, Delete, End
        chat.press("\x1b\rsecond line\r")  # Alt-Enter, then Enter
        await wires.asked('"world\\nsecond line"')
        await chat.until("Seen.")
        await chat.until(_EDITING)
        chat.press("\x1b[A\x1b[A\r")  # up, to the first line and to the message itself
        await chat.until(_EDITING)
        chat.press("/he\t")
        await chat.until("lp")
        chat.press("\r")
        await chat.until("take the last message and its answer back")
        await chat.until(_EDITING)
        chat.press("forgotten\x03")  # Ctrl-C clears the line first
        chat.press("\x03")
        with anyio.fail_after(PATIENCE_S):
            assert await chat.process.wait() == 0
    assert not any(b"forgotten" in request.body for request in wires.requests)


async def test_flags_give_the_session_its_parameters(data_dir: Path, wires: WireServer) -> None:
    wires.play(*[WireAnswer(openai_answer(["Hello there."])) for _ in range(5)])
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    flags = ("--server", f"http://127.0.0.1:{port}", "--temperature", "0.2", "--output-limit", "400")
    async with server(environ, port), program(environ, "chat", *flags) as chat:
        await chat.type("Hi with parameters")
        await chat.until("Hello there.")
        sent = (await wires.asked("Hi with parameters")).json
        assert (sent["temperature"], sent["max_tokens"]) == (0.2, 400)
        await chat.leave()
    async with server(environ, port), program(environ, "chat", *flags[:2], "--effort", "high") as chat:
        await chat.type("Hi")
        await chat.until("Not sent: Hi")


async def test_prompts_and_skills_are_named_with_a_slash(data_dir: Path, wires: WireServer) -> None:
    wires.play(*[WireAnswer(openai_answer(["Seen."])) for _ in range(4)])
    prompts = data_dir / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "weekly.md").write_text("Report on {{team}} to {{reader=all}}.")
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port), terminal(environ, port) as chat:
        await chat.until("> ")
        chat.type("/help")
        await chat.until("/weekly team=")
        chat.type("/weekly")
        await chat.until("needs team")
        await chat.until("> ")
        chat.type("/weekly team=infra")
        await wires.asked("Report on infra to all.")
        await chat.until("Seen.")


async def test_tab_completes_the_names_of_prompts(data_dir: Path, wires: WireServer) -> None:
    pytest.importorskip("prompt_toolkit")
    wires.play(*[WireAnswer(openai_answer(["Seen."])) for _ in range(2)])
    prompts = data_dir / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "weekly-report.md").write_text("Report on the week.")
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    async with server(environ, port), terminal(environ, port, "--model", "openai:test-model") as chat:
        await chat.until(_EDITING)
        chat.press("/weekly\t")
        await chat.until("-report")
        chat.press("\r")
        await wires.asked("Report on the week.")
        await chat.until("Seen.")


async def test_a_model_is_named_by_a_part_of_its_name_and_an_unknown_one_is_refused(
    data_dir: Path, wires: WireServer
) -> None:
    names = ("big-one", "small-one", "small-two", "text-embedding-small")
    wires.route("/v1/models", {"object": "list", "data": [{"id": name} for name in names]})
    wires.play(*[WireAnswer(openai_answer(["Seen."])) for _ in range(3)])
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    flags = ("--model", "openai:test-model")
    async with server(environ, port), terminal(environ, port, *flags) as chat:
        await chat.until(_EDITING)
        chat.press("/model nonesuch\r")
        await chat.until("There is no model nonesuch; nothing was changed.")
        await chat.until(_EDITING)
        chat.press("/model small\r")
        await chat.until("small fits several models: openai:small-one, openai:small-two.")
        await chat.until(_EDITING)
        chat.press("/model big\t")  # the provider's name comes by itself
        await chat.until("openai:big-one")
        chat.press("\r")
        await chat.until("The next answer is from openai:big-one.")
        await chat.until(_EDITING)
        chat.press("/model two\r")
        await chat.until("The next answer is from openai:small-two.")
        await chat.until(_EDITING)
        chat.press("Hello\r")
        assert (await wires.asked("Hello")).json["model"] == "small-two"


async def test_the_reason_of_a_failed_answer_is_printed_once(data_dir: Path, wires: WireServer) -> None:
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    reason = "There is no model provider 'nowhere'"
    flags = ("--model", "openai:test-model")
    async with server(environ, port), terminal(environ, port, *flags) as chat:
        await chat.until(_EDITING)
        chat.press("/model nowhere:model\r")
        await chat.until("The next answer is from nowhere:model.")
        await chat.until(_EDITING)
        chat.press("Hello\r")
        await chat.until(reason)
        assert reason not in await chat.until(_EDITING)


async def test_a_turn_that_waited_goes_on_in_sight_when_approve_answers_it(
    data_dir: Path, wires: WireServer
) -> None:
    arguments = json.dumps({"command": "$TOOL --version"})
    wires.play(
        WireAnswer(
            sse(openai_call(0, arguments, "call_1", "terminal"), openai_delta(finish="tool_calls"), b"[DONE]")
        ),
        WireAnswer(openai_answer(["Then I will not."])),
    )
    environ, port = environment(data_dir, wires, PYTHONUNBUFFERED="1"), free_port()
    address = f"http://127.0.0.1:{port}"
    async with server(environ, port):
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S, trust_env=False) as http:
            made = (await http.post("/api/sessions", json={"title": "Waiting"})).json()
            await http.post(
                f"/api/sessions/{made['id']}/turns",
                json={"text": "Fetch it"},
                headers={"Idempotency-Key": "k"},
            )
            with anyio.fail_after(PATIENCE_S):
                while not (await http.get("/api/approvals")).json()["items"]:
                    await anyio.lowlevel.checkpoint()
        async with chatting(environ, port) as chat:
            await chat.type(f"/sessions {made['id']}")
            await chat.until(f"Now in {made['id']}: Waiting")
            await chat.until("Something waits for you here")
            await chat.type("/approve")
            await chat.until("Run this command?")
            await chat.type("n")
            await chat.until("Then I will not.")
            await chat.leave()
            await chat.rest()
