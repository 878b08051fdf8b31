"""Which command adds an extra to the installation that runs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def install_command(extra: str, *, prefix: str = sys.prefix, python: str = sys.executable) -> str:
    """The command that adds an extra and keeps those that are there.

    The environments of ``uv tool`` and of ``pipx`` have no pip of their own.
    """
    wanted = f"'everturn[{extra}]'"
    parts = Path(prefix).parts
    if Path(prefix, "uv-receipt.toml").exists():
        return f"uv pip install --python {shlex.quote(python)} {wanted}"
    if Path(prefix, "pipx_metadata.json").exists():
        return f"pipx inject {shlex.quote(parts[-1])} {wanted}"
    return f"{shlex.quote(python)} -m pip install {wanted}"
