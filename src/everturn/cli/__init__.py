"""The command line: one file per command. Imports every room; no room imports it.

Commands are loaded when they are called, so that ``everturn --help`` costs nothing.
"""

from everturn.cli.main import main

__all__ = ["main"]
