"""Memory providers by name: the built-in one, those given by the embedding program, and plug-ins.

A plug-in names a function in the entry point group ``everturn.memory``; calling it without arguments gives
a provider. Each call opens another handle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points

from everturn.domain.errors import NotFound
from everturn.domain.memory import MemoryProvider
from everturn.memory.threaded_provider import LazyProvider, ThreadedProvider

_log = logging.getLogger("everturn.memory")

GROUP = "everturn.memory"

OpenProvider = Callable[[], MemoryProvider]


class Providers:
    """``own`` run in this loop and are trusted to yield; plug-ins run apart from it."""

    def __init__(
        self, own: Mapping[str, OpenProvider], plug_ins: Mapping[str, EntryPoint] | None = None
    ) -> None:
        self._own = dict(own)
        self._plug_ins = _find_plug_ins() if plug_ins is None else dict(plug_ins)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._own, *self._plug_ins}))

    def open(self, name: str) -> MemoryProvider:
        """A fresh handle of this provider. One that cannot be opened now is opened by the handle's first call
        that can. Raises NotFound."""
        if name in self._own:
            return self._open_own(name)
        entry = self._plug_ins.get(name)
        if entry is None:
            raise NotFound("memory provider", name)
        # Loaded on its own thread as well: importing a plug-in can take as long as it likes.
        return ThreadedProvider(lambda: entry.load()(), name)

    def _open_own(self, name: str) -> MemoryProvider:
        try:
            return self._own[name]()
        except Exception:
            # The boundary to code that is not ours. A turn needs a handle, not a memory that works: each call
            # of this one tries again, and is contained like any call that fails.
            _log.exception("The memory provider %s could not be opened; turns go on without it.", name)
            return LazyProvider(self._own[name], name)


def _find_plug_ins() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
