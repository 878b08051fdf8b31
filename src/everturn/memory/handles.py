"""The handles of this process, and which of them serves a session.

A handle is an opened provider: an agent has one, and an embedding program may bring its own. The ledger
stores the handle's name with every owed turn; this module finds the object for the name.

While the store is asked what is owed, a handle may see another turn. So every use of a handle is counted. A
caller reads ``use_count`` before it asks the store and passes it when it drops handles because of the answer.
A handle that was used since then is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from everturn.domain.memory import MemoryProvider


class _Known(msgspec.Struct):
    name: str
    handle: MemoryProvider
    sessions: dict[str, int] = msgspec.field(default_factory=dict)  # session id -> count at its last use
    is_attached: bool = False  # an agent keeps it, even if it serves no session


class Handles:
    """``prefix`` makes names unique among processes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0
        self._known: dict[str, _Known] = {}
        self._names: dict[int, str] = {}  # by identity, good while ``_known`` holds the object
        self._current: dict[str, str] = {}  # session id -> name
        self._held: Counter[tuple[str, str]] = Counter()  # (name, session id) of what is being marked
        self._use_count = 0

    def __len__(self) -> int:
        """The number of tracked handles and sessions."""
        return len(self._known) + len(self._current) + sum(len(k.sessions) for k in self._known.values())

    # --- an agent's handle ---------------------------------------------------------------------------

    def attach(self, handle: MemoryProvider) -> str:
        known = self._know(handle)
        known.is_attached = True
        return known.name

    def detach(self, handle: MemoryProvider) -> bool:
        """Forget the handle; nothing can be committed with it afterwards.

        False if it is unknown, for example because another task has just detached it.
        """
        name = self._names.pop(id(handle), None)
        if name is None:
            return False
        for session_id in self._known.pop(name).sessions:
            if self._current.get(session_id) == name:  # guard: b13
                del self._current[session_id]
        return True

    # --- a session's handle --------------------------------------------------------------------------

    def register(self, session_id: str, handle: MemoryProvider) -> str:
        """Let the handle see the session's turns from now on. Earlier turns stay with the earlier handle."""
        before = self._current.get(session_id)
        known = self._know(handle)
        self._use(known, session_id)
        self._current[session_id] = known.name  # guard: b06
        if before is not None and before != known.name:
            # Turns may still be owed to the earlier handle: keep it until they are committed (``drop_idle``).
            self._use(self._known[before], session_id)
        return known.name

    def unregister(self, session_id: str, handle: MemoryProvider) -> bool:
        name = self._names.get(id(handle))
        if name is None or session_id not in self._known[name].sessions:
            return False
        if self._current.get(session_id) == name:
            del self._current[session_id]
        self._drop(session_id, name)  # guard: b09
        return True

    def keep(self, session_id: str, handle: MemoryProvider) -> str:
        """Track the handle for a session without making it the session's own."""
        known = self._know(handle)
        self._use(known, session_id)
        return known.name

    @contextmanager
    def hold(self, session_id: str, handle: MemoryProvider) -> Iterator[str]:
        """Keep the handle while a turn is being marked as owed to it; yields its name."""
        known = self._know(handle)
        self._use(known, session_id)
        self._held[known.name, session_id] += 1
        try:
            yield known.name
        finally:
            if session_id in known.sessions:  # else it was unregistered, or the session was deleted
                self._use(known, session_id)
            self._held[known.name, session_id] -= 1
            if not self._held[known.name, session_id]:
                del self._held[known.name, session_id]

    @property
    def use_count(self) -> int:
        """The number of uses so far. A handle that is used later has a larger one."""
        return self._use_count

    def drop_idle(self, session_id: str, use_count: int) -> None:
        """Drop handles of the session that were not used since this count, except its own."""
        for name in self._handles_of(session_id):
            if (
                self._current.get(session_id) != name  # guard: b08
                and self._is_older(session_id, name, use_count)  # guard: b05
            ):
                self._drop(session_id, name)

    def release_session(self, session_id: str, use_count: int) -> None:
        """Like ``drop_idle``, and drop the session's own handle too: the session is at rest."""
        name = self._current.get(session_id)
        if name is not None and self._is_older(session_id, name, use_count):
            del self._current[session_id]
        self.drop_idle(session_id, use_count)

    def forget(self, session_id: str) -> None:
        """Drop everything about a session that was deleted."""
        self._current.pop(session_id, None)
        for name in self._handles_of(session_id):
            self._drop(session_id, name)

    # --- looking up ----------------------------------------------------------------------------------

    def current(self, session_id: str) -> tuple[str, MemoryProvider] | None:
        name = self._current.get(session_id)
        return None if name is None else (name, self._known[name].handle)

    def find(self, session_id: str, name: str) -> MemoryProvider | None:
        known = self._known.get(name)
        if known is None or not (known.is_attached or session_id in known.sessions):
            return None
        return known.handle

    def name_of(self, handle: MemoryProvider) -> str | None:
        return self._names.get(id(handle))

    def _know(self, handle: MemoryProvider) -> _Known:
        name = self._names.get(id(handle))
        if name is None:
            self._count += 1
            name = f"{self._prefix}.{self._count}"
            self._names[id(handle)] = name
            self._known[name] = _Known(name, handle)
        return self._known[name]

    def _use(self, known: _Known, session_id: str) -> None:
        self._use_count += 1
        known.sessions[session_id] = self._use_count

    def _handles_of(self, session_id: str) -> list[str]:
        return [name for name, known in self._known.items() if session_id in known.sessions]

    def _is_older(self, session_id: str, name: str, use_count: int) -> bool:
        used = self._known[name].sessions[session_id]
        return (
            used <= use_count  # guard: b05
            and (name, session_id) not in self._held  # guard: b05
        )

    def _drop(self, session_id: str, name: str) -> None:
        known = self._known.get(name)
        if known is None:
            return
        known.sessions.pop(session_id, None)
        if not known.sessions and not known.is_attached:  # guard: b17
            del self._known[name]
            del self._names[id(known.handle)]
