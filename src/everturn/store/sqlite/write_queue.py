"""What waits for the writer of a SQLite database, and what one transaction takes of it."""

from __future__ import annotations

import asyncio
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from everturn.domain.errors import EverturnError
from everturn.store.scripts.script import Append, Script, Tx

T = TypeVar("T")

BATCH_ITEMS_MAX = 4_000
# A transaction with an urgent item takes further items for as long as the last commit took, and no less than
# this. So it ends soon, and on a slow disk at least half of the time is still spent on items.
URGENT_WORK_MIN_S = 0.005


class WriteItem(Generic[T]):
    """One caller's write. Its result or its error reaches the caller through ``future``."""

    __slots__ = ("error", "future", "is_urgent", "result", "tx")
    result: T

    def __init__(self, future: asyncio.Future[T], *, is_urgent: bool = False) -> None:
        self.future = future
        self.is_urgent = is_urgent
        self.tx: Tx | None = None
        self.error: BaseException | None = None


class ScriptItem(WriteItem[T]):
    __slots__ = ("start",)

    def __init__(
        self, future: asyncio.Future[T], start: Callable[[Tx], Script[T]], *, is_urgent: bool = False
    ) -> None:
        super().__init__(future, is_urgent=is_urgent)
        self.start = start


class AppendItem(WriteItem[int]):
    """Events for the journal."""

    __slots__ = ("append",)
    error: EverturnError | None

    def __init__(self, future: asyncio.Future[int], append: Append) -> None:
        super().__init__(future)
        self.append = append


AnyItem = ScriptItem[Any] | AppendItem  # Any: the queue holds scripts with every kind of result


class WriteQueue:
    """What waits for the thread. Urgent items come first; otherwise in order."""

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[AnyItem | None] = queue.SimpleQueue()  # None: nothing follows
        self._urgent: deque[AnyItem] = deque()
        self._others: deque[AnyItem] = deque()
        self.is_over = False  # nothing follows what is here

    def __len__(self) -> int:
        return self._arrived.qsize() + len(self._urgent) + len(self._others)

    def put(self, item: AnyItem | None) -> None:
        self._arrived.put(item)

    # --- called by the thread ------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Return once there is an item, or after this time."""
        if not self._urgent and not self._others and not self.is_over:
            try:
                self._sort(self._arrived.get(timeout=seconds))
            except queue.Empty:
                return

    def look(self) -> None:
        """Sort what has arrived."""
        while not self._arrived.empty():
            self._sort(self._arrived.get_nowait())

    @property
    def others(self) -> int:
        return len(self._others)

    def pop_urgent(self) -> AnyItem | None:
        return self._urgent.popleft() if self._urgent else None

    def pop_other(self) -> AnyItem | None:
        return self._others.popleft() if self._others else None

    def pop_all(self) -> list[AnyItem]:
        self.look()
        found = [*self._urgent, *self._others]
        self._urgent.clear()
        self._others.clear()
        return found

    def _sort(self, item: AnyItem | None) -> None:
        if item is None:
            self.is_over = True
        else:
            (self._urgent if item.is_urgent else self._others).append(item)


class Batch:
    """The items of one transaction, taken while it runs; ``items`` are those that were taken.

    All that waits when it begins, urgent items first, and urgent items that arrive meanwhile. With an urgent
    item it ends early. Some other item is taken each time, however many urgent ones there are.
    """

    def __init__(self, waiting: WriteQueue, commit_s: float) -> None:
        self.items: list[AnyItem] = []
        self._waiting = waiting
        waiting.look()
        self._others_left = min(waiting.others, BATCH_ITEMS_MAX)
        self._others_max_s = max(URGENT_WORK_MIN_S, commit_s)
        self._others_since: float | None = None
        self._has_urgent = False

    def __iter__(self) -> Iterator[AnyItem]:
        return self

    def __next__(self) -> AnyItem:
        is_long = self._is_long()
        if not is_long:
            self._waiting.look()
        item = self._waiting.pop_urgent()
        if item is not None:
            self._has_urgent = True
        elif self._others_left and not is_long:
            item = self._waiting.pop_other()
            self._others_left -= 1
            if self._others_since is None:
                self._others_since = time.perf_counter()
        if item is None:
            raise StopIteration
        self.items.append(item)
        return item

    def take_all(self) -> list[AnyItem]:
        """Take all that waits, to fail together."""
        self.items.extend(self._waiting.pop_all())
        return self.items

    def _is_long(self) -> bool:
        """True if it takes no more than the urgent items that are sorted already."""
        if len(self.items) >= BATCH_ITEMS_MAX:
            return True
        since = self._others_since
        return self._has_urgent and since is not None and time.perf_counter() - since >= self._others_max_s
