"""Everturn: a self-hosted AI agent that never loses a turn.

``everturn.open`` gives a program its own agent; docs/embedding.md describes the API and what stays stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everturn.agent import (
        Agent,
        AgentMemory,
        EverturnError,
        Tool,
        ToolCall,
        ToolFailed,
        ToolQuestion,
        ToolResult,
        TurnSummary,
        after_turn,
        before_call,
        tool,
    )
    from everturn.agent import open_agent as open  # noqa: A004 - everturn.open is the name for users

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "AgentMemory",
    "EverturnError",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolQuestion",
    "ToolResult",
    "TurnSummary",
    "__version__",
    "after_turn",
    "before_call",
    "open",
    "tool",
]


def __getattr__(name: str) -> object:
    # Imported on first use: a program that only reads the version, and the command line's help, start faster.
    if name in __all__:
        from everturn import agent

        return agent.open_agent if name == "open" else getattr(agent, name)
    raise AttributeError(f"module 'everturn' has no attribute {name!r}")
