"""What the model and the page see of a command that has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec

from everturn.domain.messages import Outcome
from everturn.domain.tool import ToolResult
from everturn.tools.limits import ProcessLimits
from everturn.tools.terminal.output import head_and_tail
from everturn.tools.terminal.process import CommandEnd

_NOTED_BYTES = 16 * 1024
_NAMED_MAX = 8
_REFUSALS = (b"read-only file system", b"device or resource busy", b"could not lock config file")


def result_of(
    ran: CommandEnd, timeout_s: float, bytes_max: int, limits: ProcessLimits, sync_error: str = ""
) -> ToolResult:
    """The result of a command. ``sync_error``: why what it wrote may not survive a power cut."""
    text, is_cut = head_and_tail(ran.output, bytes_max)
    if ran.breach:
        note = f"[ended, with everything it had started: {ran.breach}]"
    elif ran.is_timed_out:
        note = f"[stopped after {timeout_s:g} s; everything it had started was ended]"
    elif ran.exit_code:
        hint = limits.hint(ran.exit_code, ran.output)
        note = f"[exit {ran.exit_code}; {hint}]" if hint else f"[exit {ran.exit_code}]"
    else:
        note = "" if text.strip() else "[no output]"
    is_bad = ran.breach or ran.is_timed_out or ran.exit_code or sync_error
    return ToolResult(
        text="\n".join(part for part in (text.rstrip("\n"), note, *_guard_notes(ran), sync_error) if part),
        outcome=Outcome.ERROR if is_bad else Outcome.OK,
        display={"kind": "terminal", "exit": ran.exit_code, "timed_out": ran.is_timed_out},
        full_output=ran.output if is_cut else None,
    )


def _guard_notes(ran: CommandEnd) -> Iterator[str]:
    """What of the project was kept from the command, because other programs would run it as its owner."""
    if ran.set_aside:
        yield (
            f"[renamed, because other programs would run it outside the sandbox: {', '.join(ran.set_aside)}. "
            "To keep it, write it with write_file, which asks.]"
        )
    lower = ran.output[-_NOTED_BYTES:].lower()
    if ran.read_only and any(words in lower for words in _REFUSALS):
        named = [path for path in ran.read_only if os.fsencode(path) in ran.output]
        yield (
            "[read-only for commands, because other programs run it outside the sandbox: "
            f"{', '.join(named or ran.read_only[:_NAMED_MAX])}. write_file and edit_file ask first.]"
        )
    covered = [path for path in ran.covered if os.fsencode(os.path.basename(path)) in ran.output]
    if covered:
        yield (
            "[cannot be used from the sandbox, because a program outside it may listen there: "
            f"{', '.join(covered[:_NAMED_MAX])}]"
        )
    if ran.is_unguarded:
        yield "[the project is too large to find every repository in it; new ones were not all looked at]"


def with_refused(result: ToolResult, refused: Sequence[str]) -> ToolResult:
    """The result with the hosts that were kept from it, and what to do if they are needed."""
    if not refused:
        return result
    names = ", ".join(refused)
    text = (
        f"[not allowed, and not contacted: {names}. What the call did besides is done. If it needs to reach "
        "them, check what has to be done again and call it with these hosts: the user will be asked.]"
    )
    display = {**(result.display or {}), "refused_hosts": list(refused)}
    return msgspec.structs.replace(result, text=f"{result.text}\n{text}", display=display)
