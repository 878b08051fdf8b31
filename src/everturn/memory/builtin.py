"""The built-in provider: extracts facts at commit, keeps them as notes, recalls them by text search."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from everturn.domain.clock import Clock
from everturn.domain.memory import Ledger, Segment
from everturn.domain.messages import Message
from everturn.domain.model import Model, Models
from everturn.domain.preferences import preferred_model
from everturn.domain.store import Records
from everturn.domain.turns import Usage
from everturn.memory.extraction import CannotExtract, Extractor
from everturn.memory.notebook import Notebooks
from everturn.memory.notes import Note, one_line, turn_source
from everturn.memory.settings import NOTES, MemorySettings

_log = logging.getLogger("everturn.memory")
_KNOWN_MAX = 20  # notes shown to the model so that it does not repeat them
_ABOUT_USER = "What you remember about the user, from notes that the user can read and change:"
_FOR_PROMPT = "[From your notes about the user, as of the beginning of this session:"


class NotesProvider:
    """One handle. All handles share the notebooks, so closing a handle does nothing."""

    name = NOTES

    def __init__(
        self,
        notebooks: Notebooks,
        models: Models,
        records: Records,
        ledger: Ledger,
        *,
        clock: Clock,
        settings: MemorySettings,
    ) -> None:
        self._notebooks = notebooks
        self._models = models
        self._records = records
        self._ledger = ledger
        self._clock = clock
        self._settings = settings
        self._extractor = Extractor(records, clock, settings)

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        """Without a prompt, the newest facts for the system prompt; with one, the facts that match it."""
        settings = self._settings
        if not prompt:
            newest = (await self._notebooks.notes(owner))[-settings.profile_facts_max :]
            return _render(_ABOUT_USER, newest, "", settings.recall_chars_max)
        found = await self._notebooks.find(owner, prompt, settings.recall_facts_max)
        return _render(_FOR_PROMPT, found, "]", settings.recall_chars_max)

    async def holds(self, owner: str, recalled: str) -> bool:
        """Whether every recalled fact is still noted; the user may have deleted one."""
        lines = [line[2:] for line in recalled.splitlines() if line.startswith("- ")]
        return await self._notebooks.holds(owner, lines)

    async def observe(self, owner: str, session_id: str, messages: Sequence[Message]) -> None:
        """Does nothing: facts are extracted at commit, from the whole segment."""

    async def commit(self, segment: Segment) -> None:
        """Extract facts and note them, once per turn. Raises ModelTrouble; the segment then stays owed.

        Turns are remembered one by one and not only by the segment's key: after an attempt with an unknown
        outcome, a turn that was undone and restored arrives under another key.
        """
        owner = segment.owner
        turns = await self._notebooks.new_turns(owner, segment.key, segment.turns)
        if not turns:
            return
        chosen = self._settings.extraction_model or await preferred_model(self._records, owner)
        model = await self._models.get(chosen)
        for portion in self._extractor.split_turns(model, turns):
            messages = [message for message in segment.messages if message.turn_id in portion]
            found = await self._extract(owner, model, messages)
            now = self._clock.now_ms()
            notes = [
                self._notebooks.new(text, now, turn_source(segment.session_id, turn)) for text, turn in found
            ]
            await self._notebooks.record_turns(owner, portion, notes)

    async def close(self) -> None:
        pass

    async def _extract(self, owner: str, model: Model, messages: Sequence[Message]) -> list[tuple[str, str]]:
        words = " ".join(message.text for message in messages if message.role == "user")
        if not words.strip():
            return []
        known = [one_line(note.text) for note in await self._notebooks.find(owner, words, _KNOWN_MAX)]
        try:
            found, usage = await self._extractor.facts(model, messages, known)
        except CannotExtract as reason:
            # Not a failure: a retry would not help. The notice appears on the memory page.
            _log.info("%s", reason)
            await self._set_notice(
                owner,
                f"{model.name} can't collect memories by itself. Say “Remember that …” to save something.",
            )
            usage = reason.usage
            # If the agent noted something with its tool in such a turn, the wish is already fulfilled.
            noted = {note.turn_id for note in await self._notebooks.notes(owner)}
            found = [fact for fact in self._extractor.find_wishes(messages, known) if fact[1] not in noted]
        else:
            await self._set_notice(owner, "")
        if usage != Usage():
            await self._ledger.spend(owner, "memory", model.name, usage)
        return found

    async def _set_notice(self, owner: str, text: str) -> None:
        before = await self._records.get(owner, "memory", "notice")
        if (before or "") != text:
            await self._records.put(owner, "memory", "notice", text)


def _render(head: str, notes: Sequence[Note], end: str, chars_max: int) -> str:
    lines = [head]
    size = len(head)
    for note in notes:
        line = f"- {one_line(note.text)}"
        if size + len(line) + 1 > chars_max:
            continue  # shorter notes may still fit
        size += len(line) + 1
        lines.append(line)
    return "\n".join([*lines, *([end] if end else [])]) if len(lines) > 1 else ""
