"""The result of a run: the figures of its suites, and the machine that produced them."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import apsw
import msgspec

from everturn import __version__
from everturn.domain.errors import Invalid
from everturn.speed.figures import Figure


class Measured(msgspec.Struct, frozen=True):
    """The figures of one suite.

    ``load`` is the machine's one-minute load average before and after. ``failure`` says why it did not
    finish.
    """

    suite: str
    seconds: float
    load: tuple[float, float]
    figures: tuple[Figure, ...]
    failure: str = ""


class SpeedResult(msgspec.Struct, frozen=True):
    version: str
    python: str
    sqlite: str
    machine: str
    processors: int
    at: int  # seconds since 1970
    is_quick: bool
    suites: tuple[Measured, ...]

    @property
    def figures(self) -> dict[str, Figure]:
        """Return the figures by suite and name. Repeated names in a suite are numbered."""
        found: dict[str, Figure] = {}
        for measured in self.suites:
            for figure in measured.figures:
                key, count = f"{measured.suite}: {figure.name}", 2
                while key in found:
                    key, count = f"{measured.suite}: {figure.name} ({count})", count + 1
                found[key] = figure
        return found


def make_result(suites: tuple[Measured, ...], *, is_quick: bool) -> SpeedResult:
    return SpeedResult(
        version=__version__,
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
        machine=f"{platform.system()} {platform.release()} on {platform.machine()}",
        processors=os.cpu_count() or 1,
        at=int(time.time()),
        is_quick=is_quick,
        suites=suites,
    )


def read_result(path: Path) -> SpeedResult:
    """Read a result from a file. Raises Invalid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SpeedResult)
    except (OSError, msgspec.DecodeError) as error:
        raise Invalid(
            f"{path} is not a result of 'everturn bench speed': {error}",
            hint="Give the file speed.json that it wrote.",
        ) from error
