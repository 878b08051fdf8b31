"""Runs a user's file and finds the tools in it. Errors become one sentence each."""

from __future__ import annotations

import re
import stat
import sys
import traceback
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from everturn.tools.function_tool import FunctionTool
from everturn.tools.own.hooks import Hook, When

BYTES_MAX: Final = 1_000_000
TIMEOUT_S_MAX: Final = 3600.0
OUTPUT_BYTES_MAX: Final = 200_000
_NAME: Final = re.compile(r"[a-zA-Z](?:_?[a-zA-Z0-9])*_?")  # "__" separates an MCP server and its tool


class Wrong(Exception):
    """A file or a tool cannot be used; the message says why in a sentence."""


class OwnFile(msgspec.Struct, frozen=True):
    """The tools and hooks in one file, or behind one entry point."""

    tools: tuple[FunctionTool, ...] = ()
    hooks: tuple[Hook, ...] = ()

    @property
    def guards(self) -> bool:
        """True if it holds a hook that can refuse calls."""
        return any(hook.when is When.BEFORE_CALL for hook in self.hooks)


def load_file(path: Path) -> OwnFile:
    """Run the file and return what it holds. Raises Wrong."""
    try:
        for place in (path.parent, path):
            if place.stat().st_mode & stat.S_IWOTH:
                raise Wrong(f"Every user of this machine can change it. Run 'chmod o-w {place}'.")
        with path.open("rb") as file:
            source = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise Wrong(f"It cannot be read: {error.strerror or error}.") from error
    if len(source) > BYTES_MAX:
        raise Wrong(f"It is larger than {BYTES_MAX // 1_000_000} MB.")
    return _contents(_run(path, source))


def load_entry(entry: EntryPoint) -> OwnFile:
    """Load the tool that a package registers. Raises Wrong."""
    found = _load(entry)
    if not isinstance(found, FunctionTool):
        raise Wrong(f"{entry.value} is not a tool: put @everturn.tool above the function.")
    _check(found)
    if found.spec.name != entry.name:
        raise Wrong(f"The entry point {entry.name} must have its tool's name: {found.spec.name}.")
    return OwnFile((found,))


def load_hook(entry: EntryPoint) -> OwnFile:
    """Load the hook that a package registers. Raises Wrong."""
    found = _load(entry)
    if not isinstance(found, Hook):
        raise Wrong(
            f"{entry.value} is not a hook: add @everturn.before_call or @everturn.after_turn above it."
        )
    _check_hook(found)
    return OwnFile(hooks=(found,))


def may_guard(path: Path) -> bool:
    """True if a file that could not be loaded may hold a hook that refuses calls, or cannot be read."""
    try:
        with path.open("rb") as file:
            return b"before_call" in file.read(BYTES_MAX)
    except OSError:
        return True


# ``Any``: whatever a package registered.
def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except BaseException as error:
        raise Wrong(f"{entry.value} cannot be loaded: {_describe(error)}.") from error


def _run(path: Path, source: bytes) -> ModuleType:
    """Run the file as a new module.

    It is not imported, because Python would run stale bytecode if the old file had the same size and second.
    """
    module = ModuleType(f"everturn_own_tools_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # type hints of its classes are looked up here
    try:
        exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102 - the user's own code
    except SyntaxError as error:
        line = f"Line {error.lineno}: " if error.filename == str(path) else ""
        raise Wrong(f"{line}{error.msg}.") from error
    except BaseException as error:
        raise Wrong(f"{_line(error, str(path))}{_describe(error)}.") from error
    return module


def _contents(module: ModuleType) -> OwnFile:
    values = list({id(value): value for value in vars(module).values()}.values())
    tools = tuple(value for value in values if isinstance(value, FunctionTool))
    for tool in tools:
        _check(tool)
    hooks = tuple(value for value in values if isinstance(value, Hook))
    for hook in hooks:
        _check_hook(hook)
    if not tools and not hooks:
        raise Wrong("It has no tools: put @everturn.tool above a function.")
    return OwnFile(tools, hooks)


def _check_hook(hook: Hook) -> None:
    if mistake := hook.find_mistake():
        raise Wrong(mistake)


def _check(tool: FunctionTool) -> None:
    spec = tool.spec
    if len(spec.name) > 64 or not _NAME.fullmatch(spec.name):
        raise Wrong(f"{spec.name!r} cannot be a tool's name: use letters, digits and single underscores.")
    if not spec.schema.description:
        raise Wrong(f"{spec.name} has no docstring. The model needs one to know what the tool is for.")
    if not 0 < spec.timeout_s <= TIMEOUT_S_MAX:
        raise Wrong(f"{spec.name}: timeout_s must be between 0 and {TIMEOUT_S_MAX:g} seconds.")
    if not 0 < spec.output_bytes_max <= OUTPUT_BYTES_MAX:
        raise Wrong(f"{spec.name}: output_bytes_max must be between 1 and {OUTPUT_BYTES_MAX}.")


def _line(error: BaseException, file: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"Line {lines[-1]}: " if lines else ""


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}".removesuffix(": ").rstrip(".")
