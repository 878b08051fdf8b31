"""Commands that outlive their tool call, their turn and the server: a shim owns each of them.

``shim.py`` is the program that parents a command and needs no server; ``folder.py`` reads what it wrote.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.jobs.folder import JobEnd, JobFolder
    from everturn.jobs.launcher import JobCommand, launch

__all__ = ["JobCommand", "JobEnd", "JobFolder", "launch"]

__getattr__ = lazy_names(__name__)
