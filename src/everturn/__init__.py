"""Everturn: a self-hosted AI agent that never loses a turn.

``everturn.open`` is the front door for programs; ``everturn.agent`` says what it offers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everturn.agent import open_agent as open  # noqa: A004 - everturn.open reads as what it is

__version__ = "0.1.0"
__all__ = ["__version__", "open"]


def __getattr__(name: str) -> Any:
    # The rooms are imported when the door is opened: a program that only asks for the version, and the
    # command line's help, need not wait for them.
    if name == "open":
        from everturn.agent import open_agent

        return open_agent
    raise AttributeError(f"module 'everturn' has no attribute {name!r}")
