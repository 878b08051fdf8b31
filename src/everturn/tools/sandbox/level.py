"""What every level of the sandbox does: it makes the words that start one command."""

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
    """``info`` tells a command's first process, which begins when ``hold`` is closed or written to."""

    info: int
    hold: int


class Start(msgspec.Struct, frozen=True):
    """One command. ``first``: what becomes it when it may begin. ``kept``: what is mounted over its view.
    ``same``: what must be as it was seen. ``pipes``: the other ends of ``BlockPipes``, closed by the
    level. ``parent``: the process id of its starter, if known."""

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
        """Everything that is inherited is closed at the end of the block. Raises OSError."""
        ...
