"""No two rooms give one name to different classes, so that a name can be looked up (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "everturn"
# A contract and what keeps it have one name: who calls the one gets the other.
CONTRACTS = frozenset(
    {
        *("AccountLeases", "Asks", "Budgets", "Chats", "Checkpoints", "Delegates", "Delivery", "Devices"),
        *("Files", "Inbox", "Jobs", "Journal", "Ledger", "Notices", "Outbox", "Records", "Schedules"),
        *("Search", "Sessions", "Store", "Transcript", "Turns", "Upkeep", "Workers", "WorkingCopies"),
    }
)
# To be renamed: take a name off this list, never add one.
DOUBLED = frozenset({"Document", "Notes", "Person", "Reader"})


def rooms_of_classes() -> dict[str, dict[str, int]]:
    """The rooms of each public class at the top of a module; how many of its classes there are contracts."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                is_contract = any("Protocol" in ast.unparse(base) for base in node.bases)
                found[node.name][room] = found[node.name].get(room, 0) + is_contract
    return found


def test_no_two_rooms_give_one_name_to_different_classes() -> None:
    doubled = {name for name, rooms in rooms_of_classes().items() if len(rooms) > 1}
    assert sorted(doubled - CONTRACTS - DOUBLED) == []
    assert sorted(DOUBLED - doubled) == [], "it is no longer doubled: take it off the list"


def test_a_listed_pair_is_a_contract_and_what_keeps_it() -> None:
    rooms = rooms_of_classes()
    assert [
        name for name in sorted(CONTRACTS) if sum(rooms[name].values()) < 1 or len(rooms[name]) != 2
    ] == []
