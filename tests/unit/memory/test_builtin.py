"""The built-in provider: what it extracts, what it never does, what it costs, what it says."""

from __future__ import annotations

import errno
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from everturn.domain.clock import Clock, SystemClock
from everturn.domain.errors import Invalid
from everturn.domain.ids import Ids
from everturn.domain.model import Abilities
from everturn.domain.model_errors import ModelOverloaded
from everturn.domain.probe import Moment
from everturn.domain.runtime import Runtime
from everturn.domain.store_values import Request
from everturn.domain.turns import Usage
from everturn.engine import Preferences, write_preferences
from everturn.memory import BuiltMemory, CommitOutcome, MemorySettings, build_memory
from everturn.memory.notebook import FileNotebooks
from everturn.memory.notes import turn_source
from everturn.store import Store
from everturn.store.files.disk import Disk
from everturn.testing import CallTool, FakeClock, HoldingProbe, ScriptedModel, ScriptedModels, acting
from everturn.testing.acting import ME
from everturn.testing.harness import OWNER, open_harness
from everturn.testing.models import Answer
from everturn.testing.tools import FakeToolbox

pytestmark = pytest.mark.anyio
OpenAnother = Callable[..., Awaitable[Store]]


def facts(*texts: str, turn: int = 1) -> str:
    return json.dumps({"facts": [{"text": text, "turn": turn} for text in texts]})


FOUND = [
    "The user is called Noor.",
    "The user lives in Lisbon.",
    "The user is allergic to walnuts.",
    "The user has a bakery with her sister Lena.",
]
PASSED = facts(*FOUND)


def built_over(
    store: Store, clock: Clock, tmp_path: Path, model: ScriptedModel, **settings: Any
) -> BuiltMemory:
    return build_memory(
        store,
        ScriptedModels(model),
        tmp_path,
        Runtime(clock, Ids(clock)),
        settings=MemorySettings(**settings),
    )


async def owed_turn(store: Store, session_id: str, text: str, reply: str = "I see.") -> str:
    held = await acting.start(store, session_id, text)
    number = await acting.append(store, held, acting.answer(reply))
    await acting.complete(store, held, number, provider="notes")
    return held.turn.id


async def texts(built: BuiltMemory, owner: str = ME) -> list[str]:
    return [note.text for note in await built.notebooks.notes(owner)]


async def test_facts_are_noted_with_session_turn_and_day_and_their_cost_is_in_usage(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    model = ScriptedModel(PASSED, facts("The user sings in a choir.", turn=2), clock=clock)
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "Hello there")
    second = await owed_turn(store, session.id, "I sing in a choir")
    assert (await built.memory.commit_session(ME, session.id)).turns == 2
    (note,) = await built.notebooks.notes(ME)
    assert (note.text, note.day) == ("The user sings in a choir.", "2025-06-15")
    assert (note.session_id, note.turn_id) == (session.id, second)
    # The exam and the extraction: two calls of ten and five tokens.
    spent = [entry.usage for entry in await store.upkeep.usage(ME, 0) if entry.model == model.name]
    assert spent == [Usage(input_tokens=20, output_tokens=10)]
    assert "I sing in a choir" in model.requests[1].messages[0].text
    assert model.requests[1].json_schema is not None


async def test_a_model_is_examined_once(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    model = ScriptedModel(PASSED, facts("One."), facts("Two."), clock=clock)
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    for text in ("one", "two"):
        await owed_turn(store, session.id, text)
        await built.memory.commit_session(ME, session.id)
    assert len(model.requests) == 3
    assert await texts(built) == ["One.", "Two."]


@pytest.mark.parametrize(
    "answer",
    [
        "I would be happy to help!",
        facts(),
        facts(*FOUND[:3]),
        facts(*FOUND, "The user likes sardines."),
        facts(*FOUND, "The user asked about rye bread."),
        facts(*FOUND, "The user wants a haiku."),
        facts(*FOUND, *(f"The user knows the number {number}." for number in range(5))),
        '{"facts": "walnuts in Lisbon"}',
    ],
    ids=[
        "prose",
        "nothing",
        "misses one",
        "the assistant's words",
        "a question",
        "a task",
        "many",
        "wrong shape",
    ],
)
async def test_a_model_that_fails_the_check_extracts_nothing_and_says_so(
    store: Store, clock: FakeClock, tmp_path: Path, answer: str
) -> None:
    model = ScriptedModel(answer, clock=clock)
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing in a choir")
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert await texts(built) == []
    assert "can't collect memories by itself" in await store.records.get(ME, "memory", "notice")
    assert len(model.requests) == 1
    # The turn, and the exam.
    assert sorted(entry.purpose for entry in await store.upkeep.usage(ME, 0)) == ["memory", "turn"]
    # Explicit remembering needs no model.
    await built.notebooks.remember(ME, "Sings in a choir.", clock.now_ms())
    assert await texts(built) == ["Sings in a choir."]


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ("Remember that I have a cat named Tom. What is 2 + 2?", ["I have a cat named Tom"]),
        ("Hello! Please remember: my train leaves at 8", ["my train leaves at 8"]),
        ("Merk dir, dass ich im Chor singe!", ["ich im Chor singe"]),
        ("Do you remember when we met?", []),
        ("Remember our trip to Lisbon?", []),
        ("I remember that it rained.", []),
        ("Remember that my password is hunter2.", []),
    ],
)
async def test_what_a_message_asks_to_remember_needs_no_able_model(
    store: Store, clock: FakeClock, tmp_path: Path, said: str, noted: list[str]
) -> None:
    built = built_over(store, clock, tmp_path, ScriptedModel("I cannot.", clock=clock))
    session = await acting.new_session(store)
    turn = await owed_turn(store, session.id, said)
    await built.memory.commit_session(ME, session.id)
    assert await texts(built) == [f"The user asked to remember: {wish}" for wish in noted]
    assert all(note.turn_id == turn for note in await built.notebooks.notes(ME))


async def test_what_the_agent_has_noted_when_asked_is_not_noted_again(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    built = built_over(store, clock, tmp_path, ScriptedModel("I cannot.", clock=clock))
    session = await acting.new_session(store)
    turn = await owed_turn(store, session.id, "Remember that I have a cat named Tom.")
    source = f"asked in {session.id} {turn}"
    await built.notebooks.remember(ME, "The user has a cat, Tom.", clock.now_ms(), source)
    await built.memory.commit_session(ME, session.id)
    assert await texts(built) == ["The user has a cat, Tom."]


async def test_a_pocket_model_takes_the_check_like_any_other(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    answer = '{"facts": ["Lisbon", "Lisbon", "The user ..."]}'
    model = ScriptedModel(answer, answer, clock=clock, abilities=Abilities(is_small=True))
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing in a choir")
    await owed_turn(store, session.id, "and I paint")
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert len(model.requests) == 2, "the two messages of the check that state something"
    exam = await store.records.get("system", "memory.exam", model.name)
    assert "it missed facts that the user stated" in exam["fault"]
    assert await texts(built) == []


SMALL_PASSED = [json.dumps({"facts": FOUND[:3]}), json.dumps({"facts": FOUND[3:]})]


async def test_a_small_model_is_shown_what_the_user_states_one_message_at_a_time(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    script: list[Answer] = [
        *SMALL_PASSED,
        '{"facts": ["The user sings in a choir."]}',
        '{"facts": ["Rain is wet."]}',
    ]
    model = ScriptedModel(*script, clock=clock, abilities=Abilities(is_brief=True))
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    first = await owed_turn(store, session.id, "I sing in a choir. Is that healthy?", "It is. Try opera.")
    await owed_turn(store, session.id, "How deep is the sea?\nAnd who measured it?", "Eleven kilometres.")
    await owed_turn(
        store, session.id, "Thanks. Write a haiku about rain!\nMy guitar has version 2.5 of its tuner"
    )
    assert (await built.memory.commit_session(ME, session.id)).turns == 3
    shown = [request.messages[0].text for request in model.requests]
    assert shown == [
        "Message:\nHi, I'm Noor. I moved to Lisbon last spring, and I am allergic to walnuts.",
        "Message:\nI run a bakery with my sister Lena.",
        "Message:\nI sing in a choir.",
        "Message:\nMy guitar has version 2.5 of its tuner",
    ]
    # What has nothing to do with the message it is said to come from was made up, and is not noted.
    assert [(n.text, n.turn_id) for n in await built.notebooks.notes(ME)] == [
        ("The user sings in a choir.", first)
    ]


async def test_what_a_small_model_has_read_is_done_when_it_is_cut_short(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    script: list[Answer] = [
        *SMALL_PASSED,
        '{"facts": ["The user sings."]}',
        ModelOverloaded("busy"),
        '{"facts": ["The user paints."]}',
    ]
    model = ScriptedModel(*script, clock=clock, abilities=Abilities(is_brief=True))
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing")
    await owed_turn(store, session.id, "I paint")
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.FAILED
    assert await texts(built) == ["The user sings."]
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert await texts(built) == ["The user sings.", "The user paints."]
    assert len(model.requests) == 5


async def test_a_small_model_continues_the_check_where_it_was_cut_short(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    """One that needs longer for it than a commit has would never come to its end otherwise."""
    script: list[Answer] = [
        SMALL_PASSED[0],
        ModelOverloaded("busy"),
        SMALL_PASSED[1],
        '{"facts": ["The user sings."]}',
    ]
    model = ScriptedModel(*script, clock=clock, abilities=Abilities(is_brief=True))
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing")
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.FAILED
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert await texts(built) == ["The user sings."]
    assert len(model.requests) == 4


@pytest.mark.parametrize(
    ("said", "answer", "is_noted"),
    [
        ("我住在里斯本", "用户住在里斯本。", True),
        ("我住在里斯本", "The user likes tea.", False),
        ("I am 42", "The user is 42 years old.", True),
        ("My allergies: nuts", "The user is allergic to nuts.", True),
        ("Ich heiße Jonas und lerne Cello.", "Jonas lernt Cello.", True),
        ("Vivo en Lisboa con mi hermana.", "El usuario vive en Lisboa.", True),
        ("Always answer in short sentences.", "The user wants short sentences.", True),
    ],
)
async def test_what_a_small_model_notes_has_something_of_the_message(
    store: Store, clock: FakeClock, tmp_path: Path, said: str, answer: str, is_noted: bool
) -> None:
    script: list[Answer] = [*SMALL_PASSED, json.dumps({"facts": [answer]})]
    model = ScriptedModel(*script, clock=clock, abilities=Abilities(is_brief=True))
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, said)
    await built.memory.commit_session(ME, session.id)
    assert await texts(built) == ([answer] if is_noted else [])


async def test_a_model_that_passed_the_check_of_another_release_takes_this_one_too(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    model = ScriptedModel("I cannot.", clock=clock)
    await store.records.put("system", "memory.exam", model.name, {"fault": "", "at": clock.now_ms()})
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing in a choir")
    await built.memory.commit_session(ME, session.id)
    assert "can't collect memories by itself" in await store.records.get(ME, "memory", "notice")
    assert await texts(built) == []


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "cut off"])
async def test_a_model_that_says_its_facts_over_and_over_passes_if_they_are_right(
    store: Store, clock: FakeClock, tmp_path: Path, is_cut: bool
) -> None:
    answer = facts(*FOUND * 5)
    exam = answer[: answer.rindex("{") + 9] if is_cut else answer
    model = ScriptedModel(exam, facts("Sings in a choir.", "Sings in a choir."), clock=clock)
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing in a choir")
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert await texts(built) == ["Sings in a choir."]
    schema = model.requests[0].json_schema
    assert schema is not None
    assert schema["properties"]["facts"]["maxItems"] < 20


async def test_a_model_that_is_away_leaves_everything_owed(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    model = ScriptedModel(PASSED, ModelOverloaded("busy"), facts("The user sings."), clock=clock)
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing")
    failed = await built.memory.commit_session(ME, session.id)
    assert failed.outcome is CommitOutcome.FAILED
    assert await texts(built) == []
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert await texts(built) == ["The user sings."]


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)  # with PostgreSQL it is one transaction
@pytest.mark.parametrize("name", [".taking", "2025-06.md", ".taken"])
async def test_a_commit_that_stops_anywhere_between_notes_and_their_mark_is_noted_once(
    store: Store, clock: FakeClock, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [name]
    rename = Disk.rename

    def fails_once(disk: Disk, source: Path, target: Path) -> None:
        if target.name in failing:
            failing.remove(target.name)
            raise OSError(errno.EIO, "the disk is ill")
        rename(disk, source, target)

    monkeypatch.setattr(Disk, "rename", fails_once)
    model = ScriptedModel(PASSED, clock=clock, then=facts("The user sings.", "The user dances."))
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing")
    await owed_turn(store, session.id, "and dance")
    assert (await built.memory.commit_session(ME, session.id)).outcome is CommitOutcome.FAILED
    # Another process, which extracts in other words, finds what the first one has done.
    again = ScriptedModel(clock=clock, then=facts("The user is a singer.", "The user is a dancer."))
    restarted = built_over(store, clock, tmp_path, again)
    assert (await restarted.memory.commit_session(ME, session.id)).outcome is CommitOutcome.COMMITTED
    assert len(await texts(restarted)) == 2
    assert isinstance(built.notebooks, FileNotebooks)
    left = [path.name for path in built.notebooks.folder_of(ME).iterdir()]
    assert sorted(left) == [".lock", ".taken", "2025-06.md"]


async def test_a_turn_that_was_undone_after_an_unknown_outcome_and_restored_is_extracted_once(
    store: Store, clock: FakeClock, tmp_path: Path, probe: HoldingProbe
) -> None:
    first = facts("The user sings.", turn=1)[:-2] + ", " + facts("The user dances.", turn=2)[11:]
    model = ScriptedModel(PASSED, first, facts("The user paints."), clock=clock, then=facts("Twice."))
    built = build_memory(
        store, ScriptedModels(model), tmp_path, Runtime(clock, Ids(clock), probe), settings=MemorySettings()
    )
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing")
    await owed_turn(store, session.id, "and dance")
    probe.hold(Moment.MEMORY_RETURNED)
    async with anyio.create_task_group() as group:
        group.start_soon(built.memory.commit_session, ME, session.id)
        await probe.reached(Moment.MEMORY_RETURNED)
        group.cancel_scope.cancel()  # noted, but the caller never got the result
    probe.release(Moment.MEMORY_RETURNED)
    await store.transcript.undo(ME, session.id, Request())
    assert (await built.memory.commit_session(ME, session.id)).turns == 1
    await store.transcript.redo(ME, session.id, Request())
    await owed_turn(store, session.id, "and paint")
    # Another key, (second turn, third turn); of the two only the third is new to the notes, and it is not lost.
    assert (await built.memory.commit_session(ME, session.id)).turns == 2
    assert await texts(built) == ["The user sings.", "The user dances.", "The user paints."]
    assert "dance" not in model.requests[-1].messages[0].text.split("Conversation:")[1]
    assert len(model.requests) == 3


async def test_two_that_extract_the_same_turns_at_once_note_them_once(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    books = built_over(store, clock, tmp_path, ScriptedModel(clock=clock)).notebooks
    source = turn_source("ses_1", "trn_1")
    for words in ("The user sings.", "The user is a singer."):
        await books.record_turns(ME, ["trn_1"], [books.new(words, clock.now_ms(), source)])
    await books.record_turns(
        ME, ["trn_2"], [books.new("the user SINGS.", clock.now_ms(), turn_source("ses_1", "trn_2"))]
    )
    assert [note.text for note in await books.notes(ME)] == ["The user sings."]
    assert await books.new_turns(ME, "ses_1:trn_1:trn_3", ["trn_1", "trn_2", "trn_3"]) == ["trn_3"]


@pytest.mark.parametrize("store_kind", ["sqlite"], indirect=True)
async def test_what_an_older_release_has_taken_in_by_key_is_not_taken_in_again(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    books = built_over(store, clock, tmp_path, ScriptedModel(clock=clock)).notebooks
    assert isinstance(books, FileNotebooks)
    folder = books.folder_of(ME)
    folder.mkdir(parents=True)
    (folder / ".taken").write_text("ses_1:trn_1:trn_2\n")
    assert await books.new_turns(ME, "ses_1:trn_1:trn_2", ["trn_1", "trn_2"]) == []
    assert await books.new_turns(ME, "ses_1:trn_3:trn_3", ["trn_3"]) == ["trn_3"]


async def test_a_fact_the_user_deleted_does_not_come_back_with_a_retry(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    model = ScriptedModel(PASSED, facts("The user sings."), clock=clock, then=facts("The user sings."))
    built = built_over(store, clock, tmp_path, model)
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing")
    handle = built.memory.providers.open("notes")
    taken: list[Any] = []
    commit = handle.commit

    async def keep(segment: Any) -> None:
        taken.append(segment)
        await commit(segment)

    handle.commit = keep  # type: ignore[method-assign]  # a stand-in
    await built.memory.commit(ME, session.id, handle)
    (note,) = await built.notebooks.notes(ME)
    await built.notebooks.forget(ME, note.id)
    await commit(taken[0])
    assert await texts(built) == []


async def test_a_note_that_is_deleted_while_a_commit_is_under_way_does_not_come_back(
    store: Store, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(PASSED, clock=clock, then=facts("The user SINGS.", "The user dances."))
    built = built_over(store, clock, tmp_path, model)
    old = await built.notebooks.remember(ME, "The user sings.", clock.now_ms())
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing and dance")
    take = built.notebooks.record_turns

    async def take_late(*args: Any) -> None:
        await built.notebooks.forget(ME, old.id)  # the model has answered, nothing is written yet
        await take(*args)

    monkeypatch.setattr(built.notebooks, "record_turns", take_late)
    assert (await built.memory.commit_session(ME, session.id)).turns == 1
    assert await texts(built) == ["The user dances."]


async def test_secrets_repeats_and_essays_are_not_noted(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    answer = facts(
        "The user sings.",
        "the user SINGS.",
        "The user's key is sk-abcdefghijklmnop1234.",
        "The password is hunter2.",
        "x" * 600,
        "",
    )
    built = built_over(store, clock, tmp_path, ScriptedModel(PASSED, answer, clock=clock))
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I sing")
    await built.memory.commit_session(ME, session.id)
    assert await texts(built) == ["The user sings."]


async def test_a_long_segment_is_read_in_pieces(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    model = ScriptedModel(PASSED, facts("One.", turn=1), facts("Two.", turn=2), clock=clock)
    built = built_over(store, clock, tmp_path, model, extraction_chars_max=100)
    session = await acting.new_session(store)
    turns = [await owed_turn(store, session.id, text * 60, "ok") for text in ("a", "b")]
    await built.memory.commit_session(ME, session.id)
    assert [(note.text, note.turn_id) for note in await built.notebooks.notes(ME)] == [
        ("One.", turns[0]),
        ("Two.", turns[1]),
    ]


async def test_what_was_learnt_in_one_session_is_known_in_the_next_and_gone_once_deleted(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    chat = ScriptedModel(clock=clock, then="fine")
    learner = ScriptedModel(
        PASSED, facts("The user keeps bees on a roof."), clock=clock, name="scripted:learner"
    )
    models = ScriptedModels(chat, learner)
    built = build_memory(
        store,
        models,
        tmp_path,
        Runtime(clock, Ids(clock)),
        settings=MemorySettings(extraction_model=learner.name),
    )
    async with open_harness(store, clock=clock, models=models, memory=built.memory) as h:
        first = await h.new_session()
        await h.run(first, "I keep bees on a roof")
        await built.memory.commit_session(OWNER, first.id)
        second = await h.new_session()
        await h.run(second, "What do my bees need in winter?")
        assert "keeps bees on a roof" in chat.requests[-1].messages[0].text
        await h.run(second, "And in spring?")
        assert chat.requests[-1].messages[0] == chat.requests[-2].messages[0], "frozen for the session"
        # The user deletes the fact in an editor. It is not sent again, not even in the same session.
        [(page, content)] = (await built.notebooks.contents(OWNER)).items()
        kept = [line for line in content.splitlines() if b"bees" not in line]
        await built.notebooks.replace(OWNER, {page: b"\n".join(kept)})
        await h.run(second, "And in summer?")
        assert "keeps bees" not in str(chat.requests[-1])
        third = await h.new_session()
        await h.run(third, "What do my bees need?")
        assert "keeps bees" not in str(chat.requests[-1])


async def test_the_agents_tool_remembers_looks_up_and_forgets(
    open_another: OpenAnother, tmp_path: Path
) -> None:
    clock = SystemClock()  # a claim that meets a commit's lock on the session looks again, by the clock
    store = await open_another(clock=clock)
    model = ScriptedModel(
        [CallTool("memory", {"action": "remember", "text": "Sings in a choir."})],
        "noted",
        [CallTool("memory", {"action": "look_up", "text": "choir"})],
        "found",
        clock=clock,
    )
    built = built_over(store, clock, tmp_path, model, extraction_model="scripted:absent")
    toolbox = FakeToolbox(built.tool)
    async with open_harness(store, clock=clock, model=model, toolbox=toolbox, memory=built.memory) as h:
        session = await h.new_session()
        turn = await h.run(session, "Remember that I sing in a choir")
        (note,) = await built.notebooks.notes(OWNER)
        assert note.text == "Sings in a choir."
        assert (note.session_id, note.turn_id) == (session.id, turn.id)
        await h.run(session, "What do you know about choirs?")
        assert note.id in str(model.requests[-1].messages[-1])
        model.add([CallTool("memory", {"action": "forget", "text": note.id})], "gone")
        await h.run(session, "Forget it")
        assert await texts(built, OWNER) == []
        model.add([CallTool("memory", {"action": "forget", "text": "not_nothing"})], "sorry")
        await h.run(session, "Forget it again")
        assert "There is no note" in str(model.requests[-1].messages[-1])


async def test_notes_recall_and_prefix_belong_to_their_owner(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    model = ScriptedModel(clock=clock, then="fine")
    built = built_over(store, clock, tmp_path, model)
    await built.notebooks.remember(OWNER, "Keeps bees.", clock.now_ms())
    await built.notebooks.remember("eve", "Keeps snakes.", clock.now_ms())
    async with open_harness(store, clock=clock, model=model, memory=built.memory) as h:
        session = await h.new_session(key="agent:main:telegram:dm:x")
        await h.run(session, "bees and snakes")
        assert "Keeps bees" in str(model.requests[-1])
        assert "snakes." not in str(model.requests[-1]).replace("bees and snakes", "")


async def test_what_was_deleted_while_nothing_ran_is_not_sent_by_the_next_process(
    open_another: OpenAnother, tmp_path: Path
) -> None:
    clock = SystemClock()  # a claim that meets a commit's lock on the session looks again, by the clock
    store = await open_another(clock=clock)
    model = ScriptedModel(clock=clock, then="fine")
    built = built_over(store, clock, tmp_path, model, extraction_model="scripted:absent")
    note = await built.notebooks.remember(OWNER, "Keeps bees.", clock.now_ms())
    async with open_harness(store, clock=clock, model=model, memory=built.memory) as h:
        session = await h.new_session()
        await h.run(session, "What do my bees need?")
        assert "Keeps bees" in model.requests[-1].messages[0].text
    again = built_over(store, clock, tmp_path, model, extraction_model="scripted:absent")
    await again.notebooks.replace(OWNER, {note.page: b""})
    async with open_harness(store, clock=clock, model=model, memory=again.memory) as h:
        await h.run(session, "And now?")
        assert "Keeps bees" not in str(model.requests[-1])


async def test_a_provider_that_is_not_installed_is_refused_at_the_start(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    with pytest.raises(Invalid, match="no memory provider 'nope'") as caught:
        built_over(store, clock, tmp_path, ScriptedModel(clock=clock), provider="nope")
    assert "notes" in caught.value.hint


async def test_facts_are_extracted_by_the_model_that_the_person_chose(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    named = ScriptedModel(name="a:named", clock=clock, then=PASSED)
    chosen = ScriptedModel(name="b:chosen", clock=clock, then=PASSED)
    await write_preferences(store.records, ME, Preferences(model="b:chosen"))
    built = build_memory(
        store, ScriptedModels(named, chosen), tmp_path, Runtime(clock, Ids(clock)), settings=MemorySettings()
    )
    session = await acting.new_session(store)
    await owed_turn(store, session.id, "I am Ada.")
    await built.memory.commit_session(ME, session.id)
    assert named.requests == []
    assert chosen.requests
