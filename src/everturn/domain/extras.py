"""Which command adds an extra to the installation that runs."""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from everturn.domain.errors import StoreRefused


@contextmanager
def report_missing(what: str, extra: str) -> Iterator[None]:
    """Raises StoreRefused, with the command that helps, if a package that is imported inside is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StoreRefused(
            f"{what} needs the package {error.name}, which is not installed.",
            hint=f"Install it with: {install_command(extra)}",
        ) from error


def install_command(extra: str, *, prefix: str = sys.prefix, python: str = sys.executable) -> str:
    """The command that adds an extra and keeps those that are there.

    The environments of ``uv tool`` and of ``pipx`` have no pip of their own.
    """
    wanted = f"'everturn[{extra}]'"
    receipt = Path(prefix, "uv-receipt.toml")
    if receipt.exists():
        return f"uv tool install {shlex.quote(_with_extra(receipt, extra))}"
    if Path(prefix, "pipx_metadata.json").exists():
        return f"pipx inject {shlex.quote(Path(prefix).parts[-1])} {wanted}"
    return f"{shlex.quote(python)} -m pip install {wanted}"


def _with_extra(receipt: Path, extra: str) -> str:
    """The requirement of ``uv tool``, with one more extra.

    What is installed there by other means is removed by the next ``uv tool upgrade``, and an extra that is
    not named again is removed at once. Without the path of a wheel or a clone, uv would look in the registry.
    """
    own = _own_requirement(receipt)
    extras = own.get("extras")
    names = [*(str(name) for name in extras), extra] if isinstance(extras, Sequence) else [extra]
    wanted = f"everturn[{','.join(dict.fromkeys(names))}]"
    path = own.get("path") or own.get("directory")
    return f"{wanted} @ {Path(path).as_uri()}" if isinstance(path, str) and Path(path).exists() else wanted


def _own_requirement(receipt: Path) -> Mapping[str, object]:
    found = tomllib.loads(receipt.read_text(encoding="utf-8")).get("tool", {}).get("requirements", [])
    return next((one for one in found if one.get("name") == "everturn"), {})
