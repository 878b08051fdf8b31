"""Builds the page into the package, so that ``pip install .`` needs no Node on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's generic is for its own use
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        frontend = Path(self.root) / "frontend"
        page = Path(self.root) / "src" / "everturn" / "web" / "page"
        if os.environ.get("EVERTURN_SKIP_PAGE") or _is_fresh(frontend, page / "index.html"):
            return
        # Node comes from a build requirement, into the environment of this very interpreter.
        command = [sys.executable, Path(self.root) / "scripts" / "npm.py", "build"]
        built = subprocess.run(command, check=False)  # noqa: S603 - our own script
        if built.returncode:
            sys.exit("Building the page failed; npm says why above.")


def _is_fresh(frontend: Path, built: Path) -> bool:
    """Whether the bundle is newer than everything it is made of."""
    if not built.exists():
        return False
    sources = [frontend / name for name in ("package-lock.json", "vite.config.ts", "index.html")]
    sources += [path for folder in ("src", "public") for path in (frontend / folder).rglob("*")]
    newest = max(path.stat().st_mtime for path in sources if path.is_file())
    return built.stat().st_mtime >= newest
