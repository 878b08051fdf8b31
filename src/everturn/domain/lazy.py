"""Packages that import a module when one of its names is first used.

Reading one room's settings would otherwise import every module of that room: 0.3 s for each command.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec


def lazy_names(package: str) -> Callable[[str], object]:
    """The ``__getattr__`` of a package that imports its names under ``if TYPE_CHECKING:`` only.

    Type checkers read these imports as they are. Here they say which module has which name, so that no
    second list can differ from them. They are read when the first name is asked for.
    """

    @cache
    def places() -> Mapping[str, str]:
        return {
            alias.name: node.module
            for block in ast.parse(_source_of(package)).body
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in block.body
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for alias in node.names
        }

    def find(name: str) -> object:
        # ``import`` itself asks for names with underscores, such as __path__, of which none is ours.
        module = None if name.startswith("_") else places().get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return find


def _source_of(package: str) -> str:
    spec = find_spec(package)
    source = None if spec is None or spec.loader is None else spec.loader.get_source(package)  # type: ignore[attr-defined]  # every loader of source files has it
    return source or ""
