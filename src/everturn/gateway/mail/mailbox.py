"""One IMAP connection. Its methods block and are called in threads, one at a time."""

from __future__ import annotations

import imaplib
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from typing import Final

from imap_tools import (
    AND,
    BaseMailBox,
    H,
    MailBox,
    MailboxFolderSelectError,
    MailboxLoginError,
    MailBoxUnencrypted,
    MailMessage,
)

from everturn.domain.errors import PlatformBusy, PlatformRefused
from everturn.gateway.mail.network import PublicMailBox, bad_certificate
from everturn.gateway.mail.settings import MailSettings

_TIMEOUT_S: Final = 30.0
_CLOSE_S: Final = 5.0
# What a server says with a refused sign-in that may succeed later (RFC 5530).
_PASSING: Final = ("[UNAVAILABLE]", "[INUSE]", "[LIMIT]", "[SERVERBUG]")


class Mailbox:
    """A mail is unread until it is taken in. The server stores that mark, so nothing needs to be stored
    here."""

    def __init__(self, settings: MailSettings, password: str) -> None:
        self._settings = settings
        self._password = password
        self._box: BaseMailBox | None = None
        self._in_use = threading.Lock()
        self._is_closed = False
        self._has_idle = False
        self.validity = ""  # the numbers of mails are valid as long as this is the same

    def open(self) -> None:
        """Connect and sign in. Raises PlatformRefused if the password is wrong, PlatformBusy."""
        with self._in_use:
            try:
                self._box = self._connect()
                self._sign_in(self._box)
            except MailboxLoginError as error:
                said = str(error.command_result)
                message = f"{self._settings.imap_host} refuses the user or the password. It says: {said}"
                is_passing = any(sign in said for sign in _PASSING)
                raise (PlatformBusy(message) if is_passing else PlatformRefused(message)) from error
            except MailboxFolderSelectError as error:
                raise PlatformRefused(f"There is no folder {self._settings.folder!r}.") from error
            except (imaplib.IMAP4.error, OSError) as error:
                host = self._settings.imap_host
                raise (
                    bad_certificate(host, error) or PlatformBusy(f"{host} cannot be used: {error}")
                ) from error
            finally:
                if self._is_closed:  # meanwhile; close() found nothing to close
                    self._shut()

    def unread(self, since: date) -> Sequence[str]:
        """The numbers of mails that are not taken in, oldest first."""
        with self._in_use:
            self._opened.client.noop()  # some servers show new mails only after a command of this kind
            found = self._opened.uids(AND(seen=False, date_gte=since), charset=None)
        return sorted(found, key=int)

    def by_message_id(self, message_id: str) -> Sequence[str]:
        with self._in_use:
            if not message_id.isascii():
                return []
            return self._opened.uids(AND(header=H("Message-ID", f"<{message_id}>")), charset=None)

    def read(self, uid: str, *, is_whole: bool) -> MailMessage | None:
        """A mail, or only its head; None: it is gone."""
        with self._in_use:
            found = self._opened.fetch(uid_list=uid, mark_seen=False, headers_only=not is_whole)
            return next(iter(found), None)

    def take(self, uid: str) -> None:
        """Mark a mail as read. The library's own method would also expunge mails that a person has marked
        as deleted."""
        with self._in_use:
            status, said = self._opened.client.uid("STORE", uid, "+FLAGS", r"(\Seen)")
            if status != "OK":
                raise PlatformBusy(f"The mail cannot be marked as read: {said!r}")

    def wait(self, seconds: float) -> bool:
        """Wait until the server reports a change, at most this long. False if it cannot report changes."""
        if not self._has_idle:
            return False
        with self._in_use, self._opened.idle as idle:
            # Polling checks the socket. A notice that came together with the server's consent to wait was
            # read with it, and is in the client's buffer.
            if not _has_buffered(self._opened.client):
                idle.poll(timeout=seconds)
        return True

    def close(self) -> None:
        """End the connection, even while another thread waits on it: that thread then gets an error."""
        self._is_closed = True
        box = self._box
        if box is None:
            return
        with suppress(OSError):  # it is closed already
            box.client.sock.shutdown(socket.SHUT_RDWR)
        if self._in_use.acquire(timeout=_CLOSE_S):
            try:
                self._shut()
            finally:
                self._in_use.release()

    @property
    def _opened(self) -> BaseMailBox:
        if self._box is None or self._is_closed:
            raise ConnectionError("the mailbox is closed")
        return self._box

    def _connect(self) -> BaseMailBox:
        host, port = self._settings.imap_host, self._settings.imap_port
        if self._settings.tls:
            kind = PublicMailBox if self._settings.is_public_only else MailBox
            return kind(host, port, timeout=_TIMEOUT_S, ssl_context=ssl.create_default_context())
        return MailBoxUnencrypted(host, port, timeout=_TIMEOUT_S)

    def _sign_in(self, box: BaseMailBox) -> None:
        is_ascii = (self._settings.login + self._password).isascii()
        (box.login if is_ascii else box.login_utf8)(self._settings.login, self._password, None)
        _, said = box.client.capability()  # servers say more after signing in
        self._has_idle = b"IDLE" in b" ".join(said).upper().split()
        box.folder.set(self._settings.folder)
        _, numbers = box.client.response("UIDVALIDITY")
        self.validity = (numbers[0] or b"").decode()

    def _shut(self) -> None:
        if self._box is not None:
            self._box.client.shutdown()
            self._box = None


def _has_buffered(client: imaplib.IMAP4) -> bool:
    """True if the client has data in its buffer. Does not wait."""
    name = "_file" if hasattr(client, "_file") else "file"  # renamed in Python 3.14
    timeout = client.sock.gettimeout()
    client.sock.settimeout(0)
    try:
        return bool(getattr(client, name).peek(1))
    except ssl.SSLWantReadError:
        return False
    finally:
        client.sock.settimeout(timeout)
