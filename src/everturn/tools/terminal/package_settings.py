"""Where the packages of profiles come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from everturn.domain.errors import Invalid
from everturn.tools.policy.hosts import HostPattern

# As a plain requirement: no address, no path, no option of pip, and no marker.
_VERSION: Final = r"(===|==|~=|!=|<=|>=|<|>) ?[A-Za-z0-9.*+!_-]+"
REQUIREMENT: Final = (
    r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._,\- ]+\])? ?"
    rf"({_VERSION}( ?, ?{_VERSION})*)?$(?!\n)"
)
Requirement = Annotated[str, Meta(pattern=REQUIREMENT, max_length=200)]
_INDEX: Final = "https://pypi.org/simple"
_HOSTS: Final = ("pypi.org", "files.pythonhosted.org")


class PackageSettings(msgspec.Struct, frozen=True, kw_only=True):
    index: Annotated[
        Annotated[str, Meta(pattern=r"^(https://[^\s/@?#]+(/[^\s@?#]*)?)?$(?!\n)")],
        Meta(description="Index that packages of profiles come from. Unset: the public one."),
    ] = ""
    hosts: Annotated[
        tuple[HostPattern, ...],
        Meta(description="Hosts that files of this index come from, besides its own."),
    ] = ()
    wheels: Annotated[
        str, Meta(description="Folder with wheels to use in place of an index; the network is not used.")
    ] = ""

    def __post_init__(self) -> None:
        if self.wheels and not Path(self.wheels).is_absolute():
            raise Invalid(
                "The folder of wheels must be an absolute path.", hint="Begin it with /.", key="wheels"
            )

    @property
    def index_url(self) -> str:
        return self.index or _INDEX

    @property
    def all_hosts(self) -> tuple[str, ...]:
        own = _HOSTS if not self.index else (urlsplit(self.index).netloc,)
        return (*own, *self.hosts)
