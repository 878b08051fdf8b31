"""State has one owner: nothing that can change lies at the top of a module."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import queue
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from types import ModuleType

import anyio
import pytest

import everturn

# Tables may be written as a dict or a list, in capitals; a test below tries whether they stay as they are.
TABLES = (dict, list, set)
CHANGING = (
    bytearray,
    deque,
    defaultdict,
    Counter,
    OrderedDict,
    queue.Queue,
    queue.SimpleQueue,
    type(itertools.count()),
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Event,
    threading.Condition,
    threading.Semaphore,
    threading.Thread,
    asyncio.Lock,
    asyncio.Event,
    asyncio.Queue,
    asyncio.Future,
    anyio.Lock,
    anyio.Event,
)


def all_modules() -> list[str]:
    """By their files: ``pkgutil`` would import every package, for each worker and before its first test."""
    package = Path(everturn.__file__).parent
    files = (path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py"))
    names = {".".join(path.parts).removesuffix(".__init__") for path in files}
    return sorted(name for name in names if not name.endswith("__main__"))


def own_values(module: ModuleType) -> list[tuple[str, object]]:
    return [
        (name, value)
        for name, value in vars(module).items()
        if not (name.startswith("__") and name.endswith("__")) and not isinstance(value, ModuleType)
    ]


@pytest.mark.parametrize("name", all_modules())
def test_nothing_at_the_top_of_a_module_can_change(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"an optional package is missing: {error}")
    wrong = [key for key, value in own_values(module) if isinstance(value, CHANGING)]
    tables = [key for key, value in own_values(module) if type(value) in TABLES]
    wrong += [key for key in tables if key != key.upper()]
    assert wrong == []
