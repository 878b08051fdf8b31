"""Names of hosts as users see and allow them: ``example.com``, or ``example.com:8080`` on another port."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from everturn.tools.policy.judgement import Concern

# Only ASCII: a name that merely looks like another one is written as xn--…, and is not the same.
_NAME = r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\])"
_HOST = re.compile(rf"({_NAME})(?::([0-9]{{1,5}}))?")
_ADDRESS = re.compile(rf"(https?)://(?:[^\s/@'\"]*@)?({_NAME})(?::([0-9]{{1,5}}))?", re.I)
_PORTS = {"http": 80, "https": 443}

HostName = Annotated[str, msgspec.Meta(pattern=rf"^{_NAME}(:[0-9]{{1,5}})?$")]
# As in a configuration: a star stands for any names before a dot.
HostPattern = Annotated[str, msgspec.Meta(pattern=rf"^(\*\.)?{_NAME}(:[0-9]{{1,5}})?$")]


def host_label(host: str, port: int) -> str:
    """The one way to write a host and a port; ports 80 and 443 are left out."""
    name = host.lower().rstrip(".")
    name = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return name if port in _PORTS.values() else f"{name}:{port}"


def host_of(written: str) -> str:
    """The label of a host as it was written in settings or arguments."""
    found = _HOST.fullmatch(written)
    return host_label(found[1], int(found[2] or 443)) if found else written


def is_host(name: str) -> bool:
    return re.fullmatch(_NAME, name) is not None


def is_this_machine(label: str) -> bool:
    """True for a name of this machine. No permission leads there, so no question is asked about it."""
    return re.fullmatch(r"(localhost|127(\.[0-9]+){3}|\[::1\])(:[0-9]+)?", label) is not None


def hosts_in(words: Iterable[str]) -> list[str]:
    """The hosts of the words that are web addresses, or options with one as their value.

    Used to ask before a command runs. What it really reaches is decided at the gate.
    """
    found = [_ADDRESS.match(word.partition("=")[2] if word.startswith("-") else word) for word in words]
    labels = [_label_of(match) for match in found if match]
    return list(dict.fromkeys(label for label in labels if not is_this_machine(label)))


def hosts_in_code(code: str) -> list[str]:
    """The hosts of the addresses with which a quoted text begins."""
    return hosts_in(re.findall(r"""["'](https?://[^"'\s]+)""", code))


def is_listed(label: str, patterns: Sequence[str]) -> bool:
    """True if a configured list has this host. ``*.example.com`` stands for all names below it."""
    known = [host_of(pattern.removeprefix("*")) for pattern in patterns]
    return any(label.endswith(name) if name.startswith(".") else label == name for name in known)


def host_concern(label: str) -> Concern:
    return Concern(f"it reaches {label}", key=host_key(label), sends=True)


def host_key(label: str) -> str:
    return f"reach {label}"


def _label_of(match: re.Match[str]) -> str:
    return host_label(match[2], int(match[3] or _PORTS[match[1].lower()]))
