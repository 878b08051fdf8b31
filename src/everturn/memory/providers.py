"""Memory providers by name: the built-in one, those given by the embedding program, and plug-ins.

A plug-in names a function in the entry point group ``everturn.memory``; calling it without arguments gives
a provider. Each call opens another handle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points

from everturn.domain.errors import NotFound
from everturn.domain.remembering import MemoryProvider
from everturn.memory.containing import Apart

GROUP = "everturn.memory"

Open = Callable[[], MemoryProvider]


class Providers:
    """``own`` run in this loop and are trusted to yield; plug-ins run apart from it."""

    def __init__(self, own: Mapping[str, Open], plug_ins: Mapping[str, EntryPoint] | None = None) -> None:
        self._own = dict(own)
        self._plug_ins = _installed() if plug_ins is None else dict(plug_ins)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._own, *self._plug_ins}))

    def open(self, name: str) -> MemoryProvider:
        """A fresh handle of this provider. Raises NotFound."""
        if name in self._own:
            return self._own[name]()
        entry = self._plug_ins.get(name)
        if entry is None:
            raise NotFound("memory provider", name)
        # Loaded on its own thread as well: importing a plug-in can take as long as it likes.
        return Apart(lambda: entry.load()(), name)


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
