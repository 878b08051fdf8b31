"""Measures what other projects need to keep a conversation; prints one JSON object per peer.

Run by ``peers.py`` with the interpreter that they are installed in, so it imports nothing of Everturn.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

TEXT = "x" * 164


# ``Any``: values of packages that are installed only to be compared.
def hermes(folder: Path, few: int, many: int) -> dict[str, float]:
    """SessionDB.append_message: one message, committed."""
    from hermes_state import SessionDB  # type: ignore[import-not-found]  # installed only to compare

    database = SessionDB(folder / "state.db")
    database.create_session("bench", source="cli")

    def append() -> None:
        database.append_message("bench", role="assistant", content=TEXT)

    return _at_lengths(append, few, many, folder)


def langgraph(folder: Path, few: int, many: int) -> dict[str, float]:
    """A graph of one node that adds a message, with the SQLite checkpointer."""
    from langchain_core.messages import AIMessage  # type: ignore[import-not-found]  # as above
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]
    from langgraph.graph import START, MessagesState, StateGraph  # type: ignore[import-not-found]

    def answer(state: Any) -> dict[str, list[Any]]:
        return {"messages": [AIMessage(TEXT)]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    connection = sqlite3.connect(folder / "graph.db", check_same_thread=False)
    compiled = graph.compile(checkpointer=SqliteSaver(connection))
    where = {"configurable": {"thread_id": "bench"}}
    return _at_lengths(lambda: compiled.invoke({"messages": []}, where), few, many, folder)


def _at_lengths(add: Any, few: int, many: int, folder: Path) -> dict[str, float]:
    """The median time of one more message after ``few`` and after ``many``, and the bytes of each."""
    times = []
    for _ in range(many):
        started = time.perf_counter()
        add()
        times.append((time.perf_counter() - started) * 1000)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    last = max(few, many // 10)
    return {
        "short_ms": statistics.median(times[few : few + last]),
        "long_ms": statistics.median(times[-last:]),
        "messages": many,
        "bytes_ratio": size / (many * len(TEXT)),
    }


PEERS = {"hermes-agent": hermes, "langgraph": langgraph}


def main() -> None:
    many = int(sys.argv[1])
    for name, measure in PEERS.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder), 10, many)
        print(json.dumps({"name": name, "version": installed, **found}), flush=True)


if __name__ == "__main__":
    main()
