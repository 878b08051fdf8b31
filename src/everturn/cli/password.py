"""everturn password"""

from __future__ import annotations

from pathlib import Path

import click

from everturn.cli.frame import console, home_option, with_store
from everturn.web import open_accounts


@click.command()
@home_option
@click.option("--remove", is_flag=True, help="Go back to no sign-in; only loopback is served then.")
def password(home: Path | None, remove: bool) -> None:
    """Set the password of the local admin, or remove it."""
    if remove:
        with_store(home, lambda store, config: open_accounts(store).remove_password())
        console().print("There is no password any more. Everturn listens on loopback only.")
        return
    given = click.prompt("New password", hide_input=True, confirmation_prompt=True)
    with_store(home, lambda store, config: open_accounts(store).set_password(given), makes_one=True)
    console().print("The password is set. Everybody has to sign in with it from now on.")
