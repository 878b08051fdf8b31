"""Opening the page in a browser, without telling other users of the machine how to get in."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
from html import escape
from pathlib import Path

from everturn.domain.clock import Clock
from everturn.domain.environ import without_secrets
from everturn.web.access.token import new_code, read_token

_FILE = "open.html"
_log = logging.getLogger("everturn.server")


def address_to_open(address: str, place: str, home: Path, clock: Clock) -> str:
    """The address with a code that signs the browser in; unchanged if there is no access token. The code is
    in the fragment, which browsers do not send and servers do not log."""
    token = read_token(home)
    return address if token is None else f"{address}#access={new_code(token, place, clock)}"


def knows_its_owner() -> bool:
    """Whether a browser that is started here is known as its owner's: on Linux, unless it runs on Windows
    outside."""
    return sys.platform == "linux" and "microsoft" not in platform.release().lower()


def open_browser(address: str, carrying: str, home: Path) -> bool:
    """Open the page; ``carrying`` is its address with a code. False if no browser could be started."""
    if knows_its_owner():
        return _start(address)
    # Every user can see with which arguments a program was started. They see this file's name.
    page = home / _FILE
    page.unlink(missing_ok=True)
    descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(carrying)}">\n')
    return _start(page.as_uri())


def _start(address: str) -> bool:
    """In a process of its own, without keys: a browser outlives us, and everything that it was started with
    can be read for as long as it runs."""
    code = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"
    command = [sys.executable, "-c", code, address]
    done = subprocess.run(  # noqa: S603 - our own program
        command, env=without_secrets(os.environ), stdout=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0
