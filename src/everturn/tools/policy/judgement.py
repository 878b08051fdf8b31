"""What a tool tells the policy about one call: the values between the tools and the policy."""

from __future__ import annotations

from pathlib import Path

import msgspec

from everturn.domain.json_types import JsonObject
from everturn.tools.limits import ProcessLimits

# The checked arguments of a call, by name. Each tool knows the types of its own.
ArgumentValues = JsonObject


class Concern(msgspec.Struct, frozen=True):
    """One reason to ask.

    ``key`` names what "in this session" and "always" would cover; without a key only "once" is offered.
    ``covers`` says the same to the user, where the key is not clear enough.
    ``sends``: data may leave for the network. ``is_outside``: it may reach outside the workspace. Once
    untrusted output is in the context, stored permission no longer covers those two.
    ``is_opaque``: what will run is not known, so the hard rules could not be checked.
    ``asks_always``: no earlier answer covers it, not even trust in the session.
    """

    reason: str
    key: str = ""
    sends: bool = False
    is_outside: bool = False
    is_opaque: bool = False
    asks_always: bool = False
    covers: str = ""


class Judgement(msgspec.Struct, frozen=True):
    """``label`` is the call in one line, for users. ``denied``: the hard rule that it breaks; final.
    ``terms``: as of a ``Ruling``, besides those of the context."""

    label: str
    denied: str = ""
    concerns: tuple[Concern, ...] = ()
    terms: tuple[str, ...] = ()


class CallContext(msgspec.Struct, frozen=True):
    """Where a call would run, as far as it matters for judging it."""

    workspace: Path
    home: Path  # the data folder: nothing of it is for tools, the workspace excepted
    is_sandboxed: bool
    has_network: bool  # inside the sandbox; outside there always is one
    has_host_network: bool = False  # not only the web: also this machine and those around it
    is_guarded: bool = True  # the sandbox keeps it from what other programs run in the workspace
    hosts: tuple[str, ...] = ()  # that the profile allows without a question
    is_tainted: bool = False
    limits: ProcessLimits = ProcessLimits()
    packages: tuple[str, ...] = ()  # that its Python has

    @property
    def is_contained(self) -> bool:
        """True if the sandbox contains what it runs and changes, and the gate what it sends."""
        return self.is_sandboxed and self.is_guarded and not self.has_host_network

    @property
    def reaches_outside(self) -> bool:
        """True if what it does can reach beyond the workspace: directly, or when other programs run what it
        wrote there."""
        return not self.is_sandboxed or not self.is_guarded

    @property
    def terms(self) -> tuple[str, ...]:
        """What an approval of a call here rests on: a question asked where less could happen was another."""
        found = {
            "outside": not self.is_sandboxed,
            "unguarded": self.reaches_outside,
            "host_network": self.has_host_network,
        }
        return tuple(name for name, is_so in found.items() if is_so)

    @property
    def is_gated(self) -> bool:
        return self.is_contained and self.has_network


def one_line(text: str, limit: int = 80) -> str:
    """The text as one line of at most ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 2].rstrip() + " …"
