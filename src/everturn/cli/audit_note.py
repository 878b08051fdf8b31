"""The audit log of commands that change who may do what."""

from __future__ import annotations

import getpass

from everturn.config import Config
from everturn.domain.clock import SystemClock
from everturn.web.access.audit import Audit


async def note_change(config: Config, what: str, detail: str) -> None:
    """Write what this user has changed on the command line. Durable on return."""
    await Audit(config.home, SystemClock()).write(what, f"{getpass.getuser()} (command line)", detail=detail)
