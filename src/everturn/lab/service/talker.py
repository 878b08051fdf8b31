"""The model that the server calls: it speaks the OpenAI wire and does what the last message wishes.

``say 40 KEY`` is answered with forty words and the key; ``run KEY`` with a command that writes the key down,
so that its effects can be counted; ``write {PATH: TEXT}`` with a call for each file. All else that is asked
(titles, summaries, facts) gets a few words.
"""

from __future__ import annotations

import json
import re

from everturn.domain.json_types import Json, JsonObject
from everturn.testing.wires import (
    WireAnswer,
    WireRequest,
    WireServer,
    openai_answer,
    openai_call,
    openai_delta,
    sse,
)

EFFECTS = "effects"  # the file in a workspace
_PAUSE_S = 0.005


class Talker(WireServer):
    def answer(self, request: WireRequest) -> WireAnswer:
        self.requests.clear()  # they would grow with the soak
        if not request.path.endswith("/chat/completions"):
            return WireAnswer([b'{"data": []}'], headers={"content-type": "application/json"})
        return WireAnswer(_answer_to(request.json["messages"]), pause_s=_PAUSE_S)


def _answer_to(messages: list[JsonObject]) -> list[bytes]:
    text = next((_text(one) for one in reversed(messages) if one["role"] == "user"), "")
    wish = text.rpartition("\n")[2]  # what was said before a cancelled answer stands in the same message
    said = re.fullmatch(r"say (\d+) (\S+)", wish)
    if said:
        return openai_answer([*(f"word{n} " for n in range(int(said[1]))), said[2]])
    run = re.fullmatch(r"run (\S+)", wish)
    if run and messages[-1]["role"] != "tool":
        arguments = json.dumps({"command": f"echo {run[1]} >> {EFFECTS}"})
        call = openai_call(0, arguments, ident="call_1", name="terminal")
        return sse(call, openai_delta("tool_calls"), b"[DONE]")
    written = re.fullmatch(r"write (\{.*\})", wish)
    if written and messages[-1]["role"] != "tool":
        return sse(*_writes(json.loads(written[1])), openai_delta("tool_calls"), b"[DONE]")
    return openai_answer(["It is ", "done: ", run[1] if run else "nothing"])


def _writes(files: dict[str, str]) -> list[Json]:
    return [
        openai_call(
            number, json.dumps({"path": path, "content": text}), ident=f"call_{number}", name="write_file"
        )
        for number, (path, text) in enumerate(files.items())
    ]


def _text(message: JsonObject) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
