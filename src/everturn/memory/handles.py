"""Which handles live in this process, and which of them serves a session.

A handle is an opened provider: an agent has one, a plug-in author may bring one. The ledger names a turn's
handle by its name; here the name leads to the object, as long as somebody keeps it.
"""

from __future__ import annotations

import msgspec

from everturn.domain.remembering import MemoryProvider


class _Known(msgspec.Struct):
    name: str
    handle: MemoryProvider
    sessions: set[str] = msgspec.field(default_factory=set)
    is_attached: bool = False  # an agent keeps it, whatever sessions it serves


class Handles:
    """``prefix`` makes names unique among processes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0
        self._known: dict[str, _Known] = {}
        self._names: dict[int, str] = {}  # by identity, good while ``_known`` holds the object
        self._current: dict[str, str] = {}  # session id -> name

    def __len__(self) -> int:
        """How many handles, and sessions of theirs, are kept track of."""
        return len(self._known) + len(self._current) + sum(len(k.sessions) for k in self._known.values())

    # --- an agent's handle ---------------------------------------------------------------------------

    def attach(self, handle: MemoryProvider) -> str:
        known = self._know(handle)
        known.is_attached = True
        return known.name

    def detach(self, handle: MemoryProvider) -> bool:
        """Forget the handle wholly: nothing that is owed can be committed by it any more.

        False if it was not known, e.g. because somebody else has just detached it.
        """
        name = self._names.pop(id(handle), None)
        if name is None:
            return False
        for session_id in self._known.pop(name).sessions:
            if self._current.get(session_id) == name:
                del self._current[session_id]
        return True

    # --- a session's handle --------------------------------------------------------------------------

    def register(self, session_id: str, handle: MemoryProvider) -> str:
        """From now on the session's turns are this handle's. What an older one saw stays with that one."""
        before = self._current.get(session_id)
        known = self._know(handle)
        known.sessions.add(session_id)
        self._current[session_id] = known.name
        if before is not None and before != known.name:
            # It may owe something here: it stays findable until that is settled (``settled``).
            self._known[before].sessions.add(session_id)
        return known.name

    def unregister(self, session_id: str, handle: MemoryProvider) -> bool:
        name = self._names.get(id(handle))
        if name is None or session_id not in self._known[name].sessions:
            return False
        if self._current.get(session_id) == name:
            del self._current[session_id]
        self._drop(session_id, name)
        return True

    def keep(self, session_id: str, handle: MemoryProvider) -> str:
        """Remember who owes here without making it the session's handle."""
        known = self._know(handle)
        known.sessions.add(session_id)
        return known.name

    def settled(self, session_id: str, name: str) -> None:
        """This handle owes nothing here any more: forget it, unless it still serves the session."""
        if self._current.get(session_id) != name:
            self._drop(session_id, name)

    def nothing_owed(self, session_id: str) -> None:
        """Nobody owes anything here: only the session's own handle is kept."""
        for name in [name for name, known in self._known.items() if session_id in known.sessions]:
            self.settled(session_id, name)

    def forget(self, session_id: str) -> None:
        """The session is gone, or at rest with nothing owed."""
        self._current.pop(session_id, None)
        self.nothing_owed(session_id)

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

    def _drop(self, session_id: str, name: str) -> None:
        known = self._known.get(name)
        if known is None:
            return
        known.sessions.discard(session_id)
        if not known.sessions and not known.is_attached:
            del self._known[name]
            del self._names[id(known.handle)]
