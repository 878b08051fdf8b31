"""Sends one message by Apprise, in a process of its own that may reach only what web fetch may (F11).

Apprise connects in many ways and follows redirects. So the check is not in its code but below it: an audit
hook sees every connection of the process, whichever library makes it, with the address that it goes to. The
process starts no others, and ends with the message.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any, Final

import anyio
import msgspec

from everturn.delivery.poster import split_address
from everturn.domain.extras import install_command
from everturn.tools.web.fetch import is_public

MISSING: Final = f"Other services need the extra 'notify': {install_command('notify')}"
# These would reach this machine and not a service, or pass what is sent to a program of its own.
_LOCAL: Final = ("dbus", "qt", "glib", "kde", "gnome", "macosx", "windows", "syslog", "apprise", "apprises")
_STARTS: Final = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork")
_OUTPUT_BYTES_MAX: Final = 10_000


class Order(msgspec.Struct, frozen=True):
    """``url``: of Apprise. ``is_check``: only check whether the address can be used."""

    url: str
    title: str
    text: str
    private: tuple[str, ...] = ()
    is_check: bool = False


class SendOutcome(msgspec.Struct, frozen=True):
    """``problem``: empty if it was sent. ``is_refused``: trying again would not help."""

    problem: str = ""
    is_refused: bool = False


def is_installed() -> bool:
    return importlib.util.find_spec("apprise") is not None


async def run(order: Order) -> SendOutcome:
    """Send in a child process. Cancelled, the child is killed and the outcome unknown."""
    command = [sys.executable, "-P", "-m", "everturn.delivery.notifications.apprise_child"]
    # Not our environment: a proxy in it would hide where a connection goes, and its keys are not needed.
    environ = {name: os.environ[name] for name in ("PATH", "LANG", "TZ", "PYTHONPATH") if name in os.environ}
    async with await anyio.open_process(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        try:
            await process.stdin.send(msgspec.json.encode(order))
            await process.stdin.aclose()
            said = bytearray()
            async for chunk in process.stdout:
                said += chunk
                if len(said) > _OUTPUT_BYTES_MAX:
                    break
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            raise
    try:
        return msgspec.json.decode(said, type=SendOutcome)
    except msgspec.MsgspecError:
        # It may have died after the message had left.
        raise RuntimeError("Apprise ended without saying what became of the message.") from None


class _Blocked(OSError):
    """Raised in the child by its audit hook."""


def guard(private: tuple[str, ...]) -> list[str]:
    """From now on this process connects only to addresses that are public or in the list, and starts no
    programs; this cannot be undone. Returns the list of refusals, which grows."""
    allowed = frozenset(map(split_address, private))
    blocked: list[str] = []

    # ``Any``: what an event carries differs from one to the next.
    def watch(event: str, details: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            refusal = _refusal(details[1], allowed) if details[1] is not None else ""
        elif event in _STARTS:
            refusal = "No programs are started."
        else:
            return
        if refusal:
            blocked.append(refusal)
            raise _Blocked(refusal)

    sys.addaudithook(watch)
    return blocked


# ``Any``: an address of any family.
def _refusal(address: Any, allowed: frozenset[tuple[str, int]]) -> str:
    if not isinstance(address, tuple) or len(address) < 2:
        return "Only the network can be reached."
    host, port = str(address[0]), int(address[1])
    try:
        is_fine = (host, port) in allowed or is_public(host)
    except ValueError:  # a name: it would be looked up after this check
        return f"{host[:100]} is not an address."
    return "" if is_fine else f"{host} is not a public address; it was not contacted."


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    print(msgspec.json.encode(_perform(order)).decode())  # noqa: T201 - this is how it answers


def _perform(order: Order) -> SendOutcome:
    if not is_installed():
        return SendOutcome(MISSING)
    apprise = importlib.import_module("apprise")
    if order.url.partition(":")[0].lower() in _LOCAL:
        return SendOutcome("Addresses of this kind are not sent to.", is_refused=True)
    plugin = apprise.Apprise.instantiate(order.url)
    if plugin is None:
        return SendOutcome("Apprise does not know this address, or a part is missing.", is_refused=True)
    if order.is_check:
        return SendOutcome()
    blocked = guard(order.private)
    with apprise.LogCapture(level=30, fmt="%(message)s") as log:
        is_sent = bool(plugin.notify(body=order.text, title=order.title))
        lines = log.getvalue().splitlines()
    if blocked:
        return SendOutcome(blocked[0], is_refused=True)
    return SendOutcome() if is_sent else SendOutcome(_reason(lines))


def _reason(lines: list[str]) -> str:
    line = next((line.strip() for line in lines if line.strip()), "")
    return line[:200] or "The service did not take the message."


if __name__ == "__main__":
    main()
