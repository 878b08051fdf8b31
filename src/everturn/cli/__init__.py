"""The command line: one file per command. Imports every room; no room imports it.

Commands are loaded when they are called, so that ``everturn --help`` costs nothing.
"""

import sys

if sys.platform == "win32":
    # Before anything is imported: the first module that is missing there would hide the reason.
    sys.exit(
        "Everturn does not run on Windows itself, only in WSL (Windows Subsystem for Linux). "
        "Run 'wsl --install' in PowerShell, open the new Linux terminal, and install Everturn there."
    )

from everturn.cli.main import main

__all__ = ["main"]
