"""The access token: lets clients that the kernel cannot identify into a server without a password.

It is a file in the data folder that only its owner can read. An address to open in a browser does not carry
the token itself, which would stay in the browser's history and show in process lists, but a code made from
it: valid once, for ten minutes, at one place, and only if it was made after the server started.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from everturn.domain.clock import Clock

FILE = "access-token"
CODE_MINUTES = 10
_CODE_MS = CODE_MINUTES * 60_000
_TOKEN = re.compile(r"eva_[0-9a-f]{64}")
_CODE = re.compile(r"evc_([0-9]{1,15})_([0-9a-f]{32})_([0-9a-f]{64})")
_READ_BYTES = 200

_log = logging.getLogger("everturn.web")


class Access:
    """Knows the token and which codes were used. ``token`` None: this way in is closed."""

    def __init__(self, token: str | None, clock: Clock) -> None:
        self._token = token
        self._clock = clock
        self._since = clock.now_ms()
        self._used: dict[str, int] = {}  # code -> when it is over

    @classmethod
    def open(cls, home: Path, clock: Clock) -> Access:
        """With the token of the data folder, which is made if there is none that can be trusted."""
        try:
            return cls(read_token(home) or _make_token(home), clock)
        except OSError as error:
            _log.warning(
                "there is no access token, and only processes of this server's own user get in: %s", error
            )
            return cls(None, clock)

    def is_token(self, text: str) -> bool:
        return self._token is not None and hmac.compare_digest(text.encode(), self._token.encode())

    def redeem(self, text: str, place: str) -> bool:
        """True if the text is the token, or a code that was not used before."""
        if self.is_token(text):
            return True
        found = _CODE.fullmatch(text)
        if found is None or self._token is None:
            return False
        made_at, now = int(found[1]), self._clock.now_ms()
        if not hmac.compare_digest(text, _code(self._token, place, made_at, found[2])):
            return False
        # What was used is not kept when the server stops: no older code counts.
        if not max(self._since, now - _CODE_MS) <= made_at <= now or text in self._used:
            return False
        self._used = {code: end for code, end in self._used.items() if end > now}
        self._used[text] = now + _CODE_MS
        return True


def new_code(token: str, place: str, clock: Clock) -> str:
    """A code for the server at ``place`` (address and port, as it listens)."""
    return _code(token, place, clock.now_ms(), secrets.token_hex(16))


def _code(token: str, place: str, made_at: int, nonce: str) -> str:
    signed = hmac.new(token.encode(), f"{place} {made_at} {nonce}".encode(), hashlib.sha256)
    return f"evc_{made_at}_{nonce}_{signed.hexdigest()}"


def read_token(home: Path) -> str | None:
    """The token, if there is one that no other user could have read or written."""
    try:
        descriptor = os.open(home / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        text = file.read(_READ_BYTES).decode("ascii", "replace").strip()
    is_private = stat.S_ISREG(about.st_mode) and not about.st_mode & 0o077
    is_trusted = about.st_uid in (os.geteuid(), home.stat().st_uid)
    return text if is_private and is_trusted and _TOKEN.fullmatch(text) else None


def _make_token(home: Path) -> str:
    """Durable on return. Two servers that start at once end up with the same token."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, draft = home / FILE, home / f".{FILE}.{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"eva_{secrets.token_hex(32)}\n")
            file.flush()
            os.fsync(descriptor)
        if path.is_symlink() or path.exists():
            _log.warning("%s was readable by others, or not a token: it is replaced", path)
            draft.replace(path)
        else:
            with suppress(FileExistsError):  # another server was faster; its token is as good
                os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    token = read_token(home)
    if token is None:
        raise OSError(f"{path} cannot be kept private")
    return token
