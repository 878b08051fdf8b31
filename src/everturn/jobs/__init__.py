"""Commands that outlive their tool call, their turn and the server: a shim owns each of them.

Imports domain, tools, and small parts of engine and delivery. Called by app and web. ``jobs.py`` starts jobs,
watches those of this machine and reports their ends. ``shim.py`` is the program that parents a command and
needs no server; ``folder.py`` reads what it wrote.
"""

from typing import TYPE_CHECKING

from everturn.domain.lazy import lazy_names

if TYPE_CHECKING:
    from everturn.jobs.jobs import Jobs, JobServices
    from everturn.jobs.settings import JobSettings

__all__ = ["JobServices", "JobSettings", "Jobs"]

__getattr__ = lazy_names(__name__)
