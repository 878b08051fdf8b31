"""everturn version"""

from __future__ import annotations

import platform

import apsw
import click

from everturn import __version__


@click.command()
def version() -> None:
    """Show version information."""
    click.echo(f"everturn {__version__}")
    click.echo(f"python   {platform.python_version()}")
    click.echo(f"sqlite   {apsw.sqlite_lib_version()}")
