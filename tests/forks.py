"""Commands as forks of a process that has imported them: see ``everturn.testing.forks``."""

from everturn.testing.forks import (
    EVERTURN,
    Fork,
    Input,
    Output,
    Process,
    fork_command,
    open_command,
    run_command,
    start_command,
)

__all__ = [
    "EVERTURN",
    "Fork",
    "Input",
    "Output",
    "Process",
    "fork_command",
    "open_command",
    "run_command",
    "start_command",
]
