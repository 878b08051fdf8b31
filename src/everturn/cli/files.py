"""everturn files"""

from __future__ import annotations

import click

from everturn.cli.files_read import diff, get, history, list_, show
from everturn.cli.files_restore import restore


@click.group()
def files() -> None:
    """Read, compare, download and restore the files of a session, as of any turn."""


for command in (list_, show, get, diff, history, restore):
    files.add_command(command)
