"""everturn files"""

from __future__ import annotations

import click

from everturn.cli.files_restore import restore


@click.group()
def files() -> None:
    """Restore the files of a session."""


files.add_command(restore)
