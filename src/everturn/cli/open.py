"""everturn open"""

from __future__ import annotations

from pathlib import Path

import click

from everturn.cli.common import home_option, server_address
from everturn.config import Flags, read_config
from everturn.domain.clock import SystemClock
from everturn.domain.errors import Invalid
from everturn.web.access.browser import address_to_open, open_browser
from everturn.web.access.token import CODE_MINUTES, FILE, read_token


@click.command("open")
@home_option
@click.option("--host", help="The server's address, if it differs from the settings.")
@click.option("--port", type=int, help="The server's port, if it differs from the settings.")
@click.option("--token", "is_token", is_flag=True, help="Print the access token, for API clients.")
@click.option("--print", "is_printed", is_flag=True, help="Print the address without opening a browser.")
def open_(home: Path | None, host: str | None, port: int | None, is_token: bool, is_printed: bool) -> None:
    """Open the page in a browser, signed in, if the server has no password.

    The printed address signs in one browser, once, within ten minutes. Use it for a browser that the server
    does not recognise as yours: outside WSL, behind port forwarding, or of another user. If the server has a
    password, the page asks for it instead.
    """
    config = read_config(home, flags=Flags(host=host, port=port))
    token = read_token(config.home)
    if token is None:
        raise Invalid(
            f"There is no {FILE} in {config.home} that only you can read. No server has started there yet.",
            hint="Start the server with 'everturn serve', or name its folder with --home.",
        )
    if is_token:
        click.echo(token)
        return
    address, place = server_address(config)
    carrying = address_to_open(address, place, config.home, SystemClock())
    click.echo(carrying)
    click.echo(f"Valid once, for {CODE_MINUTES} minutes.", err=True)
    if not is_printed and not open_browser(address, carrying, config.home):
        click.echo("No browser could be started. Open the address yourself.", err=True)
