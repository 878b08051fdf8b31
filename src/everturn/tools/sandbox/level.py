"""The interface of a sandbox level, which builds the words that start one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import msgspec

from everturn.tools.policy.guarded import GuardedMount
from everturn.tools.sandbox.view import SandboxView

# True if control groups limit this: ``pids`` or ``memory``.
Holds = Callable[[str], bool]


class BlockPipes(NamedTuple):
    """``info`` receives the command's first process, which waits until ``hold`` is closed or written to."""

    info: int
    hold: int


class Start(msgspec.Struct, frozen=True):
    """One command to start.

    ``first``: words that run first and become the command when it may begin. ``kept``: mounts over its view.
    ``same``: files that must not have changed. ``pipes``: the other ends of ``BlockPipes``, which the level
    closes. ``parent``: the process id of its starter, if known.
    """

    argv: Sequence[str]
    view: SandboxView
    first: Sequence[str] = ()
    kept: Sequence[GuardedMount] = ()
    same: Sequence[GuardedMount] = ()
    pipes: BlockPipes | None = None
    parent: int = 0


class Ready(NamedTuple):
    """The words that start a command in the sandbox, and the descriptors that they inherit."""

    words: list[str]
    passed: list[int]


class SandboxLevel(Protocol):
    def command(self, start: Start) -> AbstractContextManager[Ready]:
        """Yield the words. The inherited descriptors are closed when the block ends. Raises OSError."""
        ...
