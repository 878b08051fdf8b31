"""Checks the folders in an MCP server's settings each time it starts."""

from __future__ import annotations

import os
from pathlib import Path

from everturn.tools.profiles import McpServer
from everturn.tools.schema import ToolFailed


def own_folders(server: McpServer, data_folder: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the folders that the server may read and may write. Raises ToolFailed."""
    read = tuple(_folder(server, "read", given, _why_not_shown(given, data_folder)) for given in server.read)
    write = tuple(
        _folder(server, "write", given, _why_not_written(given, data_folder)) for given in server.write
    )
    return read, write


def _folder(server: McpServer, key: str, given: str, why: str) -> Path:
    if why:
        raise ToolFailed(
            f"The MCP server {server.name} was not started: {key} in [mcp.{server.name}] names {given}, "
            f"which {why}. Name an existing folder by its real path."
        )
    return Path(_plain(given))


def _why_not_shown(given: str, data_folder: Path) -> str:
    """Return why a server must not see this path; empty if it may.

    The agent's commands can write to some folders and could put a link to another one there.
    """
    path = _plain(given)
    real = os.path.realpath(path)
    if not os.path.isabs(path):
        return "is not an absolute path"
    if not os.path.exists(path):
        return "is not there"
    if real != path:
        return f"leads to {real} through a link"
    if Path(path).is_relative_to(data_folder):
        return "lies in Everturn's data folder"
    return ""


def _why_not_written(given: str, data_folder: Path) -> str:
    """Return why a server must not write to this folder; empty if it may.

    A program that can write to the home folder controls what the user's shell runs.
    """
    path = Path(_plain(given))
    if why := _why_not_shown(given, data_folder):
        return why
    if not path.is_dir():
        return "is not a folder"
    if data_folder.is_relative_to(path):
        return "holds Everturn's data folder"
    if Path(os.path.realpath(Path.home())).is_relative_to(path):
        return "holds your home folder"
    return ""


def _plain(given: str) -> str:
    return os.path.normpath(os.path.expanduser(given))
