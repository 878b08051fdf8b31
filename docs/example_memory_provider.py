"""A complete memory provider: it keeps what the user said in a file and recalls the lines that fit."""

import json
import os
import re
from pathlib import Path


class LinesProvider:
    name = "lines"

    def __init__(self, file: Path) -> None:
        self._file = file

    def _lines(self) -> list[dict[str, str]]:
        if not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text().splitlines()]

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        words = set(re.findall(r"\w{4,}", prompt.lower()))
        fitting = [
            line["text"]
            for line in self._lines()
            if line["owner"] == owner and words & set(re.findall(r"\w{4,}", line["text"].lower()))
        ]
        return "The user said before:\n" + "\n".join(f"- {text}" for text in fitting[-5:]) if fitting else ""

    async def observe(self, owner, session_id, messages) -> None:
        pass

    async def commit(self, segment) -> None:
        known = {line["turn"] for line in self._lines()}  # a turn comes again after a failure or a crash
        rows = [
            {"owner": segment.owner, "turn": message.turn_id, "text": message.text}
            for message in segment.messages
            if message.role == "user" and message.turn_id not in known
        ]
        with self._file.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())

    async def close(self) -> None:
        pass


def open_lines() -> LinesProvider:
    return LinesProvider(Path.home() / "lines.jsonl")
