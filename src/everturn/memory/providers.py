"""Memory providers by name: the built-in one, those of an embedding program, and plug-ins.

A plug-in registers a function in the entry point group ``everturn.memory``. Each call of the function,
without arguments, returns a new handle.
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
    """``own`` providers run in the server's loop and must not block; plug-ins run on their own threads."""

    def __init__(
        self, own: Mapping[str, OpenProvider], plug_ins: Mapping[str, EntryPoint] | None = None
    ) -> None:
        self._own = dict(own)
        self._plug_ins = _find_plug_ins() if plug_ins is None else dict(plug_ins)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._own, *self._plug_ins}))

    def open(self, name: str) -> MemoryProvider:
        """A new handle of this provider. If it cannot be opened now, each call of the handle tries again.

        Raises NotFound.
        """
        if name in self._own:
            return self._open_own(name)
        entry = self._plug_ins.get(name)
        if entry is None:
            raise NotFound("memory provider", name)
        # Importing a plug-in may take long, so that happens on its thread too.
        return ThreadedProvider(lambda: entry.load()(), name)

    def _open_own(self, name: str) -> MemoryProvider:
        try:
            return self._own[name]()
        except Exception:
            # An embedding program's code may raise anything. A turn needs a handle even if memory does not
            # work: each call of this one tries to open the provider again and fails like any other call.
            _log.exception("The memory provider %s could not be opened; turns continue without it.", name)
            return LazyProvider(self._own[name], name)


def _find_plug_ins() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
