"""Extracts facts about the user from a session, with a model that has passed a test.

The input is the user's messages and the agent's answers; the ledger delivers nothing else. A large model
reads a whole segment at once. A small one sees one message of the user at a time, and only the sentences
about the user: given more, it answers questions, notes tasks, and mistakes answers for the user's words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

import msgspec

from everturn.domain.clock import Clock
from everturn.domain.json_types import JsonObject
from everturn.domain.messages import Message, Role, Text
from everturn.domain.model import Finish, Model, ModelRequest, TextChunk
from everturn.domain.store import Records
from everturn.domain.turns import Usage
from everturn.memory.notes import one_line
from everturn.memory.settings import MemorySettings
from everturn.models.small_models import find_self_statements, is_grounded

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
_SMALL_SYSTEM = (
    "Note what a user's message says about the user that will still hold next month: name, people, places, "
    "health, preferences, projects, how the user wants things done. One short sentence per fact, in the "
    "user's language, each once. If it says nothing about the user, the list is empty.\n"
    'Answer with JSON only, e.g. {"facts": ["The user ...", "The user ..."]} or {"facts": []}'
)


def _list_of(items: JsonObject, most: int) -> JsonObject:
    """The schema of an answer. Bounded: a model restricted to JSON may repeat its list without end."""
    return {
        "type": "object",
        "properties": {"facts": {"type": "array", "maxItems": most, "items": items}},
        "required": ["facts"],
        "additionalProperties": False,
    }


_SCHEMA = _list_of(
    {
        "type": "object",
        "properties": {"text": {"type": "string"}, "turn": {"type": "integer"}},
        "required": ["text", "turn"],
        "additionalProperties": False,
    },
    12,
)
_SMALL_SCHEMA = _list_of({"type": "string"}, 6)
_SMALL_CHARS_MAX = 2_000  # of one message; a longer one is mostly pasted text
_OUTPUT_TOKENS = 1_200
_EXAM_CHARS = 24_000
_SECRET = re.compile(
    r"(sk|pk|ghp|gho|xox[abp]|AKIA|AIza)[-_A-Za-z0-9]{12,}|-----BEGIN|\b(?:\d[ -]?){13,19}\b"
    r"|\b(password|passwort|mot de passe|contraseña)\b\W+(is|ist|est|es|:)",
    re.IGNORECASE,
)


# "Remember that …" as a sentence of its own. Not a question: "Remember when …?" asks for a story.
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
    facts: tuple[Fact | str, ...] = ()


class CannotExtract(Exception):
    """The model failed the test, so no facts are extracted with it. ``usage``: the cost of the test."""

    def __init__(self, message: str, usage: Usage) -> None:
        super().__init__(message)
        self.usage = usage


def _message(turn: str, role: Role, text: str) -> Message:
    return Message(id="", turn_id=turn, role=role, parts=(Text(text),), created_at=0)


class _Exam:
    """A test session whose facts are known. A model passes if it finds them and invents none."""

    messages = (
        _message(
            "1", Role.USER, "Hi, I'm Noor. I moved to Lisbon last spring, and I am allergic to walnuts."
        ),
        _message(
            "1", Role.ASSISTANT, "Welcome, Noor! Lisbon is on the Tagus. Many people there love sardines."
        ),
        _message("2", Role.USER, "What is 17 times 3?"),
        _message("2", Role.ASSISTANT, "51."),
        _message("3", Role.USER, "I run a bakery with my sister Lena. How long does rye bread keep?"),
        _message("3", Role.ASSISTANT, "About a week, in linen."),
        _message("4", Role.USER, "Thanks! Write a haiku about rain."),
        _message("4", Role.ASSISTANT, "Grey drops on the roof ..."),
    )

    @staticmethod
    def find_fault(facts: Sequence[str]) -> str:
        """What is wrong with the answer; empty if it passes."""
        if not facts:
            return "it found nothing, or did not answer in JSON"
        said = " ".join(facts).lower()
        if not all(word in said for word in ("lisbon", "walnut", "baker", "lena")):
            return "it missed facts that the user stated"
        if any(word in said for word in ("51", "sardine", "tagus", "week", "linen")):
            return "it took the assistant's words for the user's"
        if any(word in said for word in ("17", "times", "rye", "haiku", "rain")):
            return "it took questions and tasks for facts"
        return "it wrote too many facts" if len(facts) > 8 else ""


class Extractor:
    """Asks a model for facts if it has passed the exam. The exam's result is stored."""

    def __init__(self, records: Records, clock: Clock, settings: MemorySettings) -> None:
        self._records = records
        self._clock = clock
        self._settings = settings

    def split_turns(self, model: Model, turns: Sequence[str]) -> list[list[str]]:
        """The turns to extract together: all of them, or one by one for a small model.

        A small model may need minutes for a segment; one by one, finished turns are not repeated.
        """
        return [[turn] for turn in turns] if _is_small(model) else [list(turns)]

    async def facts(
        self, model: Model, messages: Sequence[Message], known: Sequence[str]
    ) -> tuple[list[tuple[str, str]], Usage]:
        """Pairs of fact and turn id, and the cost. Raises ModelTrouble, CannotExtract."""
        usage = await self._check(model)
        found, cost = await _extract(model, messages, known, self._settings.extraction_chars_max)
        return self._filter(found, known), usage.plus(cost)

    def find_wishes(self, messages: Sequence[Message], known: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs of fact and turn id for explicit wishes ("Remember that …"), found without a model."""
        found = [
            (f"The user asked to remember: {wish}", message.turn_id)
            for message in messages
            if message.role is Role.USER
            for wish in _WISH.findall(message.text)
        ]
        return self._filter(found, known)

    def _filter(self, found: Sequence[tuple[str, str]], known: Sequence[str]) -> list[tuple[str, str]]:
        """Without repetitions, secrets and texts too long for one fact."""
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
        """Let a model take the exam if it has not yet. Raises CannotExtract if it fails."""
        kept = await self._records.get("system", "memory.exam", model.name)
        if kept is None or kept.get("exam") != _EXAM:  # none, or from a release with another exam
            kept = {"exam": _EXAM}
        cost = Usage()
        is_old_fault = kept.get("fault") and self._clock.now_ms() - kept["at"] > 24 * 3600 * 1000
        if "fault" not in kept or is_old_fault:
            facts, cost = await self._run_exam(model, kept.get("answers", []))
            kept = {"exam": _EXAM, "fault": _Exam.find_fault(facts), "at": self._clock.now_ms()}
            await self._records.put("system", "memory.exam", model.name, kept)
        if kept["fault"]:
            raise CannotExtract(f"{model.name} failed the extraction check: {kept['fault']}", cost)
        return cost

    async def _run_exam(self, model: Model, answers: list[list[str]]) -> tuple[list[str], Usage]:
        """The facts that a model finds in the exam.

        A small model may need longer than a commit may take: its answers are stored one by one, and the next
        attempt continues after them.
        """
        if not _is_small(model):
            found, cost = await _extract(model, _Exam.messages, (), _EXAM_CHARS)
            return [text for text, _ in found], cost
        usage = Usage()
        for _, words in _statements(_Exam.messages)[len(answers) :]:
            facts, cost = await _extract_small(model, words)
            usage = usage.plus(cost)
            answers = [*answers, facts]
            kept = {"exam": _EXAM, "answers": answers}
            await self._records.put("system", "memory.exam", model.name, kept)
        return [fact for facts in answers for fact in facts], usage


_EXAM = hashlib.sha256(
    msgspec.json.encode((_Exam.messages, _SYSTEM, _SCHEMA, _SMALL_SYSTEM, _SMALL_SCHEMA))
).hexdigest()[:12]


def _is_small(model: Model) -> bool:
    return model.abilities.is_small or model.abilities.is_brief


async def _extract(
    model: Model, messages: Sequence[Message], known: Sequence[str], chars_max: int
) -> tuple[list[tuple[str, str]], Usage]:
    """Pairs of fact and turn id as the model reports them, and the cost."""
    found: list[tuple[str, str]] = []
    usage = Usage()
    turns = list(dict.fromkeys(message.turn_id for message in messages))
    if _is_small(model):
        for turn_id, words in _statements(messages):
            facts, cost = await _extract_small(model, words)
            usage = usage.plus(cost)
            found += [(fact, turn_id) for fact in facts]
        return found, usage
    before = "Known already:\n" + "\n".join(f"- {fact}" for fact in known) + "\n\n" if known else ""
    for piece in _pieces(messages, turns, chars_max):
        answer, cost = await _ask(model, _SYSTEM, f"{before}Conversation:\n{piece}", _SCHEMA)
        usage = usage.plus(cost)
        found += [(fact.text, turns[min(max(fact.turn, 1), len(turns)) - 1]) for fact in answer]
    return found, usage


async def _extract_small(model: Model, words: str) -> tuple[list[str], Usage]:
    """The facts that a small model finds in sentences about the user."""
    answer, cost = await _ask(model, _SMALL_SYSTEM, f"Message:\n{words}", _SMALL_SCHEMA)
    return [fact.text for fact in answer if is_grounded(words, fact.text)], cost


async def _ask(model: Model, system: str, text: str, schema: JsonObject) -> tuple[list[Fact], Usage]:
    request = ModelRequest(
        system=system,
        messages=(_message("", Role.USER, text),),
        output_tokens_max=_OUTPUT_TOKENS,
        json_schema=schema,
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
    return _parse_facts("".join(said)), usage


def _parse_facts(text: str) -> list[Fact]:
    """The facts in an answer, each once, even if there is text or a fence around the JSON."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return []
    for whole in (text[start : end + 1], text[start : end + 1] + "]}"):  # cut off: keep the complete facts
        try:
            answer = msgspec.convert(json.loads(whole), _Answer, strict=False)
        except (ValueError, msgspec.ValidationError):
            continue
        distinct: dict[str, Fact] = {}
        for each in answer.facts:
            fact = Fact(each) if isinstance(each, str) else each
            distinct.setdefault(one_line(fact.text).casefold(), fact)
        return list(distinct.values())
    return []


def _statements(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Pairs of turn id and the sentences in which the user speaks about themselves."""
    found = []
    for message in messages:
        if message.role is not Role.USER:
            continue
        words = find_self_statements(message.text[:_SMALL_CHARS_MAX])
        if words:
            found.append((message.turn_id, words))
    return found


def _pieces(messages: Sequence[Message], turns: Sequence[str], chars_max: int) -> list[str]:
    """The session, numbered by turn, in pieces that a model can read at once."""
    pieces: list[str] = []
    lines: list[str] = []
    size = 0
    for message in messages:
        speaker = "User" if message.role is Role.USER else "Assistant"
        # An answer is context for the user's words, not a source: its beginning is enough.
        limit = chars_max if message.role is Role.USER else 1_500
        line = f"[{turns.index(message.turn_id) + 1}] {speaker}: {message.text[:limit]}"
        if lines and size + len(line) > chars_max:
            pieces.append("\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    return [*pieces, "\n".join(lines)] if lines else pieces
