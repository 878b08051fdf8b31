"""Write the scenes' turns, as events and as the server folds them, for the page's reducer tests.

python frontend/dev/fixtures.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent))

import house
import scenes

from everturn.domain.fold import fold


def main() -> None:
    # A fixed time, so that the file changes only when the fold or a scene does.
    house.now_ms = scenes.now_ms = lambda: 1_800_000_000_000
    turns = []
    for here in scenes.full().sessions.values():
        if here.row.title in ("A very long talk", "Markdown of every kind") or here.row.title.startswith(
            "An older"
        ):
            continue
        for turn in here.turns.values():
            folded = fold(turn.row.id, turn.events, is_ended=turn.row.state in house.ENDED)
            turns.append(
                {
                    "title": f"{here.row.title}: {turn.row.text[:40]}",
                    "row": turn.row,
                    "messages": turn.messages(),
                    "usage": folded.usage,
                    "timeline": folded.timeline,
                    "events": [
                        {
                            "session_id": here.row.id,
                            "position": event.position,
                            "turn_id": event.turn_id,
                            "at": event.at,
                            "event": msgspec.Raw(event.data),
                        }
                        for event in turn.events
                    ],
                }
            )
    target = Path(__file__).parents[1] / "tests/fixtures/turns.json"
    target.write_bytes(msgspec.json.format(msgspec.json.encode(turns), indent=1) + b"\n")


main()
