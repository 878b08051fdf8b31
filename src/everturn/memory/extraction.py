"""Facts from a conversation, by a model that has shown that it can.

Only the user's words and the agent's answers come in here; the ledger hands over nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.messages import Message, Role, Text
from everturn.domain.modelling import Finish, Model, ModelRequest, TextChunk
from everturn.domain.storing import Records
from everturn.domain.turns import Usage
from everturn.memory.notes import one_line
from everturn.memory.settings import MemorySettings

_SYSTEM = (
    "You keep notes about a user for later conversations. Read the conversation and write down lasting "
    "facts about the user and the user's work: name, people, places, preferences, projects, decisions, "
    "how the user wants things done.\n"
    "Only what the user said or clearly confirmed. Not what the assistant explained, guessed or calculated. "
    "Not what matters only today. No passwords, keys or card numbers. Nothing that is known already.\n"
    "Each fact is one short sentence in the user's language that makes sense on its own, and names the "
    "number of the turn it comes from. If there is nothing, the list is empty.\n"
    'Answer with JSON only: {"facts": [{"text": "The user ...", "turn": 1}]}'
)
_FACTS_MAX = (
    12  # a small model that is held to JSON begins its list again and again, until its answer is cut off
)
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "maxItems": _FACTS_MAX,
            "items": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "turn": {"type": "integer"}},
                "required": ["text", "turn"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["facts"],
    "additionalProperties": False,
}
_OUTPUT_TOKENS = 1_200
_SECRET = re.compile(
    r"(sk|pk|ghp|gho|xox[abp]|AKIA|AIza)[-_A-Za-z0-9]{12,}|-----BEGIN|\b(?:\d[ -]?){13,19}\b"
    r"|\b(password|passwort|mot de passe|contraseña)\b\W+(is|ist|est|es|:)",
    re.IGNORECASE,
)


# "Remember that …", as a sentence of its own. No question: "Remember when …?" wants something told.
_WISH = re.compile(
    r"(?:^|(?<=[.!?\n]))\s*(?:please\s+|bitte\s+)?"
    r"(?:remember|(?:merke?|merk)\s+dir|retiens|souviens-toi|recuerda|ricorda|onthoud)\b"
    r"[\s,:]*(?:that|dass|daß|que|qu'|che|dat)?[\s,:]*([^.!?\n]+)(?=[.!\n]|$)",
    re.IGNORECASE,
)


class Fact(msgspec.Struct, frozen=True):
    text: str
    turn: int = 1


class _Answer(msgspec.Struct, frozen=True):
    facts: tuple[Fact, ...] = ()


class CannotExtract(Exception):
    """The model has shown that it cannot do this; nothing is to be extracted with it.

    ``usage``: what finding out has cost.
    """

    def __init__(self, message: str, usage: Usage) -> None:
        super().__init__(message)
        self.usage = usage


class _Exam:
    """A conversation whose facts are known. A model passes if it finds them and invents none."""

    conversation = (
        "[1] User: Hi, I'm Noor. I moved to Lisbon last spring, and I am allergic to walnuts.\n"
        "[1] Assistant: Welcome, Noor! Lisbon is on the Tagus. Many people there love sardines.\n"
        "[2] User: What is 17 times 3?\n"
        "[2] Assistant: 51."
    )

    @staticmethod
    def fault(facts: Sequence[Fact]) -> str:
        """What is wrong with the answer; empty if nothing is."""
        said = " ".join(fact.text for fact in facts).lower()
        if "lisbon" not in said or "walnut" not in said:
            return "it missed facts that the user stated"
        if "51" in said or "sardine" in said or "tagus" in said:
            return "it took the assistant's words for the user's"
        return "it wrote too many facts" if len(facts) > 6 else ""


class Extractor:
    """Asks a model for facts, after it has passed the exam; the result of that is kept."""

    def __init__(self, records: Records, clock: Clock, settings: MemorySettings) -> None:
        self._records = records
        self._clock = clock
        self._settings = settings

    async def facts(
        self, model: Model, messages: Sequence[Message], known: Sequence[str]
    ) -> tuple[list[tuple[str, str]], Usage]:
        """(fact, turn id) of what the messages hold, and what it cost. Raises ModelTrouble, CannotExtract."""
        usage = await self._check(model)
        turns = list(dict.fromkeys(message.turn_id for message in messages))
        found: list[tuple[str, str]] = []
        for piece in _pieces(messages, turns, self._settings.extraction_chars_max):
            answer, cost = await _ask(model, piece, known)
            usage = usage.plus(cost)
            found += [(fact.text, turns[min(max(fact.turn, 1), len(turns)) - 1]) for fact in answer.facts]
        return self._kept(found, known), usage

    def asked(self, messages: Sequence[Message], known: Sequence[str]) -> list[tuple[str, str]]:
        """(fact, turn id) of what the user asked to remember in so many words: that needs no model."""
        found = [
            (f"The user asked to remember: {wish}", message.turn_id)
            for message in messages
            if message.role is Role.USER
            for wish in _WISH.findall(message.text)
        ]
        return self._kept(found, known)

    def _kept(self, found: Sequence[tuple[str, str]], known: Sequence[str]) -> list[tuple[str, str]]:
        """Without repeats, secrets and what is too long to be one fact."""
        seen = {one_line(text).casefold() for text in known}
        kept = []
        for text, turn_id in found:
            fact = one_line(text)
            is_fact = 3 <= len(fact) <= self._settings.fact_chars_max and not _SECRET.search(fact)
            if is_fact and fact.casefold() not in seen:
                seen.add(fact.casefold())
                kept.append((fact, turn_id))
        return kept[: self._settings.facts_per_commit_max]

    async def _check(self, model: Model) -> Usage:
        """Let a model that was not examined yet take the exam. Raises CannotExtract if it does not pass."""
        kept = await self._records.get("system", "memory.exam", model.name)
        cost = Usage()
        if kept is None or (kept["fault"] and self._clock.now_ms() - kept["at"] > 24 * 3600 * 1000):
            answer, cost = await _ask(model, _Exam.conversation, ())
            fault = (
                _Exam.fault(answer.facts) if answer.facts else "it found nothing, or did not answer in JSON"
            )
            kept = {"fault": fault, "at": self._clock.now_ms()}
            await self._records.put("system", "memory.exam", model.name, kept)
        if kept["fault"]:
            raise CannotExtract(f"{model.name} failed the extraction check: {kept['fault']}", cost)
        return cost


async def _ask(model: Model, conversation: str, known: Sequence[str]) -> tuple[_Answer, Usage]:
    before = "Known already:\n" + "\n".join(f"- {fact}" for fact in known) + "\n\n" if known else ""
    message = Message(
        id="",
        turn_id="",
        role=Role.USER,
        parts=(Text(f"{before}Conversation:\n{conversation}"),),
        created_at=0,
    )
    request = ModelRequest(
        system=_SYSTEM,
        messages=(message,),
        output_tokens_max=_OUTPUT_TOKENS,
        json_schema=_SCHEMA,
        temperature=0.0,
    )
    said: list[str] = []
    usage = Usage()
    async with model.stream(request) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                said.append(chunk.text)
            elif isinstance(chunk, Finish):
                usage = chunk.usage
    return _answer("".join(said)), usage


def _answer(text: str) -> _Answer:
    """The facts in an answer, each once, also where the model put prose or a fence around its JSON."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return _Answer()
    for whole in (text[start : end + 1], text[start : end + 1] + "]}"):  # cut off: what is whole is kept
        try:
            answer = msgspec.convert(json.loads(whole), _Answer, strict=False)
        except (ValueError, msgspec.ValidationError):
            continue
        distinct: dict[str, Fact] = {}
        for fact in answer.facts:
            distinct.setdefault(one_line(fact.text).casefold(), fact)
        return _Answer(tuple(distinct.values()))
    return _Answer()


def _pieces(messages: Sequence[Message], turns: Sequence[str], chars_max: int) -> list[str]:
    """The conversation, numbered by turn, in pieces that a model can read at once."""
    pieces: list[str] = []
    lines: list[str] = []
    size = 0
    for message in messages:
        speaker = "User" if message.role is Role.USER else "Assistant"
        # An answer is context for the user's words, not a source: its head is enough.
        limit = chars_max if message.role is Role.USER else 1_500
        line = f"[{turns.index(message.turn_id) + 1}] {speaker}: {message.text[:limit]}"
        if lines and size + len(line) > chars_max:
            pieces.append("\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    return [*pieces, "\n".join(lines)] if lines else pieces
