"""everturn password"""

from __future__ import annotations

from pathlib import Path

import click

from everturn.cli.common import console, home_option, with_store
from everturn.domain.errors import Invalid
from everturn.web import open_accounts
from everturn.web.access.passwords import PASSWORD_LENGTH_MIN


@click.command()
@home_option
@click.option("--remove", is_flag=True, help="Remove the password (local access only).")
def password(home: Path | None, remove: bool) -> None:
    """Set the password of the local admin, or remove it."""
    if remove:
        with_store(home, lambda store, config: open_accounts(store).remove_password())
        console().print("The password was removed. Everturn now accepts local connections only.")
        return
    given = _ask_password()
    with_store(home, lambda store, config: open_accounts(store).set_password(given), makes_one=True)
    console().print("The password is set. Everyone must now sign in with it.")


def _ask_password() -> str:
    """Ask for the password twice. Refuse one that is too short before asking again."""
    while True:
        given = str(
            click.prompt(f"New password (at least {PASSWORD_LENGTH_MIN} characters)", hide_input=True)
        )
        if len(given) < PASSWORD_LENGTH_MIN:
            raise Invalid(
                f"A password needs at least {PASSWORD_LENGTH_MIN} characters. Nothing was changed.",
                hint="Tip: four random words work well.",
            )
        if given == click.prompt("Repeat the password", hide_input=True):
            return given
        click.echo("The passwords do not match.", err=True)
