"""The conformance suite passes for the built-in provider and the documented example, and finds faults."""

from __future__ import annotations

import importlib.util
import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio.lowlevel
import pytest

from everturn.domain.ids import Ids
from everturn.domain.memory import MemoryProvider, Segment
from everturn.domain.messages import Message
from everturn.domain.runtime import Runtime
from everturn.memory import build_memory
from everturn.store import Store
from everturn.testing import FakeClock, ScriptedModels
from everturn.testing.memory_conformance import ProviderConformance, segment_of

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).parents[3] / "docs" / "example_memory_provider.py"


def example():
    spec = importlib.util.spec_from_file_location("example_memory_provider", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestDocumentedExample(ProviderConformance):
    recalls_words = True
    takes_turns_once = True

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.file = tmp_path / "lines.jsonl"

    def open(self) -> MemoryProvider:
        provider: MemoryProvider = example().LinesProvider(self.file)
        return provider


class Echo:
    """A model that notes every sentence in which the user speaks of themselves as a fact."""

    name = "echo:one"

    def __init__(self) -> None:
        from everturn.testing import ScriptedModel

        self._model = ScriptedModel()
        self.abilities = self._model.abilities

    def stream(self, request):
        from everturn.testing import ScriptedModel

        said = request.messages[0].text.split("Conversation:")[1].splitlines()
        sentences = [
            sentence
            for line in said
            if "User: " in line
            for sentence in re.findall(r"[^.?!]+[.?!]", line.split("User: ")[1])
        ]
        facts = [
            {"text": sentence.strip(), "turn": 1}
            for sentence in sentences
            if sentence.endswith(".") and sentence.split()[0] in ("Hi,", "I", "My")
        ]
        return ScriptedModel(json.dumps({"facts": facts})).stream(request)


class TestBuiltIn(ProviderConformance):
    recalls_words = True
    takes_turns_once = True
    lives_apart = False

    @pytest.fixture(autouse=True)
    def place(self, store: Store, tmp_path: Path, clock: FakeClock) -> None:
        models = ScriptedModels(Echo())
        self.built = build_memory(store, models, tmp_path, Runtime(clock, Ids(clock)))

    def open(self) -> MemoryProvider:
        return self.built.memory.providers.open("notes")


# --- the suite finds what is wrong ------------------------------------------------------------------------


class Forgetful:
    """Correct, except for what a subclass breaks."""

    name = "broken"

    def __init__(self, kept: dict[str, list[tuple[str, str]]]) -> None:
        self.kept = kept

    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        return " ".join(text for _, text in self.kept.get(owner, []))

    async def observe(self, owner: str, session_id: str, messages: Sequence[Message]) -> None:
        pass

    async def commit(self, segment: Segment) -> None:
        await anyio.lowlevel.checkpoint()
        kept = self.kept.setdefault(segment.owner, [])
        if segment.key not in [key for key, _ in kept]:
            kept.append((segment.key, " ".join(message.text for message in segment.messages)))

    async def close(self) -> None:
        pass


class TakesTwice(Forgetful):
    async def commit(self, segment: Segment) -> None:
        await super().commit(segment)
        self.kept[segment.owner].append(("again", "and again"))


class MixesOwners(Forgetful):
    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        return str(self.kept)


class Loses(Forgetful):
    async def commit(self, segment: Segment) -> None:
        pass


class TakesKeysOnly(Forgetful):
    async def recall(self, owner: str, session_key: str, prompt: str) -> str:
        words = prompt.split()
        return " ".join(text for _, text in self.kept.get(owner, []) if any(word in text for word in words))


class Rewrites(Forgetful):
    """Reads all, then writes all: what another thread wrote meanwhile is gone."""

    all_have_read = threading.Barrier(4)  # as many as the suite lets commit at once

    async def commit(self, segment: Segment) -> None:
        before = {owner: list(kept) for owner, kept in self.kept.items()}
        self.all_have_read.wait(10)
        await Forgetful(before).commit(segment)
        self.kept.clear()
        self.kept.update(before)


class Nameless(Forgetful):
    name = ""


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (TakesTwice, "test_the_same_key_twice_is_taken_in_once"),
        (Rewrites, "test_handles_on_threads_of_their_own_commit_at_once"),
        (MixesOwners, "test_owners_do_not_see_each_other"),
        (Loses, "test_a_commit_is_remembered_by_the_next_handle"),
        (Nameless, "test_it_has_a_name_that_can_be_stored"),
    ],
)
async def test_the_suite_fails_a_broken_provider_and_passes_a_right_one(
    kind: type[Forgetful], test: str
) -> None:
    def suite(of: type[Forgetful]) -> ProviderConformance:
        kept: dict[str, list[tuple[str, str]]] = {}

        class Suite(ProviderConformance):
            recalls_words = True

            def open(self) -> MemoryProvider:
                return of(kept)

        return Suite()

    await getattr(suite(Forgetful), test)()
    with pytest.raises(AssertionError):
        await getattr(suite(kind), test)()


async def test_a_provider_that_keeps_keys_only_is_found_out_where_it_says_that_it_keeps_turns() -> None:
    kept: dict[str, list[tuple[str, str]]] = {}

    class Suite(ProviderConformance):
        recalls_words = True
        takes_turns_once = True

        def open(self) -> MemoryProvider:
            return TakesKeysOnly(kept)

    with pytest.raises(AssertionError):
        await Suite().test_a_turn_that_comes_again_under_another_key_is_taken_in_once()


def test_the_example_is_short_enough_to_be_an_example() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip() and '"""' not in line]
    assert len(lines) <= 45
    assert segment_of(1, "a", "b").key.count(":") == 2
