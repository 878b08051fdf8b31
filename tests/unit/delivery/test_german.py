"""What the server says in chats and notifications, in German."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.delivery.commands import HELP
from everturn.delivery.german import answer_in_german, speaks_german, title_in_german
from everturn.domain.preferences import KIND, NAME
from everturn.store import open_store

pytestmark = pytest.mark.anyio


def test_each_line_of_the_help_is_german() -> None:
    said = answer_in_german(f"You are paired.\n{HELP}").split("\n")
    assert len(said) == len(HELP.split("\n")) + 1
    assert not set(said) & {"You are paired.", *HELP.split("\n")}
    assert said[0] == "Du bist gekoppelt."


def test_words_of_a_person_keep_their_place() -> None:
    assert (
        answer_in_german("This chat goes on with: {Notes} 100%")
        == "Dieser Chat geht weiter mit: {Notes} 100%"
    )
    assert title_in_german("Approve this command") == "Diesen Befehl erlauben?"
    assert title_in_german("Approve web_fetch") == "web_fetch erlauben?"
    assert title_in_german("Schedule failed: Seen") == "Zeitplan fehlgeschlagen: Seen"


def test_what_is_not_listed_stays_as_it_is() -> None:
    assert answer_in_german("1. A title\nQueued: 2.") == "1. A title\nQueued: 2."


async def test_the_owner_chooses(tmp_path: Path) -> None:
    async with open_store(None, data_dir=tmp_path) as store:
        assert not await speaks_german(store.records, "local")
        await store.records.put("local", KIND, NAME, {"language": "de"})
        assert await speaks_german(store.records, "local")
        assert not await speaks_german(store.records, "another")
