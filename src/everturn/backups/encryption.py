"""Encryption of backups in the age format (https://age-encryption.org/v1), by the package pyrage, an extra.

Each backup is encrypted for the configured keys and for one key of its own. With its own key the server reads
the backup back and tests it. That key exists only in memory and is discarded afterwards, so the server cannot
read the backup later. With a passphrase, the backup's own key is encrypted with the passphrase and stored
beside the backup, because the package cannot encrypt a stream with a passphrase.
"""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from everturn.backups.archive import ReadableStream, WritableStream
from everturn.backups.settings import BackupSettings
from everturn.domain.errors import Invalid, StoreBroken
from everturn.domain.extras import report_missing

PASSPHRASE_MIN: Final = 12  # in characters
_CHILD_S: Final = 120


class Lock:
    """The keys of one backup.

    ``key_file`` is its own key encrypted with the passphrase, None with public keys.
    """

    def __init__(self, identity: object, recipients: Sequence[object], key_file: bytes | None) -> None:
        self._identity = identity
        self._recipients = list(recipients)
        self.key_file = key_file

    def encrypt(self, source: ReadableStream, target: WritableStream) -> None:
        """Encrypt a stream.

        Raises StoreBroken, which hides errors of ``source`` and ``target``: check those first.
        """
        age = import_age()
        try:
            age.encrypt_io(source, target, self._recipients)
        except age.EncryptError as error:
            raise StoreBroken(f"The backup could not be encrypted: {error}.") from error

    def key(self) -> Key:
        return Key([self._identity])


class Key:
    """Opens encrypted backups."""

    def __init__(self, identities: Sequence[object]) -> None:
        self._identities = list(identities)

    def decrypt(self, source: ReadableStream, target: WritableStream) -> None:
        """Decrypt a stream. Raises Invalid if the key does not fit, StoreBroken if the backup is damaged."""
        age = import_age()
        try:
            age.decrypt_io(source, target, self._identities)
        except age.DecryptError as error:
            if "No matching keys" not in str(error):
                raise StoreBroken(
                    f"The encrypted backup is damaged: {error}. Nothing was restored."
                ) from error
            raise Invalid(
                "The backup was not encrypted for this key. Nothing was restored.",
                hint="Name the identity whose public key is among [backup] recipients.",
            ) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise StoreBroken(f"The encrypted backup is damaged: {error}. Nothing was restored.") from error


def import_age() -> ModuleType:
    """Import the package pyrage. Raises StoreRefused if it is not installed."""
    with report_missing("Encrypting backups", "age"):
        import pyrage
    module: ModuleType = pyrage
    return module


def make_lock(settings: BackupSettings) -> Lock | None:
    """Return a lock for one backup, or None if encryption is off.

    Takes seconds with a passphrase, so call it in a thread. Raises Invalid, StoreRefused.
    """
    if not settings.is_encrypted:
        return None
    age = import_age()
    identity = age.x25519.Identity.generate()
    own = identity.to_public()
    if settings.passphrase_file is None:
        return Lock(identity, [own, *map(parse_recipient, settings.recipients)], None)
    passphrase = read_passphrase(Path(settings.passphrase_file).expanduser())
    return Lock(identity, [own], wrap(str(identity), passphrase))


def parse_recipient(text: str) -> object:
    """Raises Invalid."""
    age = import_age()
    kind = age.ssh if text.startswith("ssh-") else age.x25519
    if text.startswith("AGE-SECRET-KEY-"):
        raise Invalid(
            "A recipient is a secret key. Only its public key (age1…) belongs there.", key="recipients"
        )
    try:
        found: object = kind.Recipient.from_str(text.strip())
    except age.RecipientError as error:
        raise Invalid(
            f"{text[:70]!r} is not a public key of age: {error}.",
            hint="'age-keygen' prints one that begins with age1; ssh-ed25519 and ssh-rsa keys work as well.",
            key="recipients",
        ) from error
    return found


def read_passphrase(path: Path) -> str:
    """Read the first line of a file that only its owner can read. Raises Invalid."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Invalid(
            f"The passphrase file {path} cannot be read: {reason}.", key="passphrase_file"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise Invalid(
            f"Other users can read the passphrase file {path}.",
            hint=f"Run: chmod 600 {path}",
            key="passphrase_file",
        )
    line = text.split("\n", 1)[0].strip("\r")
    if len(line) < PASSPHRASE_MIN:
        raise Invalid(
            f"The passphrase in {path} has fewer than {PASSPHRASE_MIN} characters.",
            hint="Four words that do not belong together are good.",
            key="passphrase_file",
        )
    return line


def wrap(identity: str, passphrase: str) -> bytes:
    """Encrypt a key with a passphrase in a child process.

    It takes seconds and 150 MB, and pyrage would block this process in the meantime.
    """
    command = [sys.executable, "-P", "-m", "everturn.backups.wrapping_child"]
    given = f"{passphrase}\n{identity}".encode()
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=_CHILD_S, check=True)  # noqa: S603 - our own program
    except (subprocess.SubprocessError, OSError) as error:
        raise StoreBroken("The key of the backup could not be encrypted with the passphrase.") from error
    return done.stdout


def unwrap(key_file: bytes, passphrase: str) -> Key:
    """Decrypt a key. Raises Invalid for a wrong passphrase."""
    age = import_age()
    try:
        secret = age.passphrase.decrypt(key_file, passphrase).decode()
        return Key([age.x25519.Identity.from_str(secret.strip().splitlines()[-1])])
    except (age.DecryptError, age.IdentityError, UnicodeDecodeError, IndexError) as error:
        raise Invalid(
            "The passphrase is not the one that this backup was encrypted with. Nothing was restored.",
            hint="Try again.",
        ) from error


def read_identities(path: Path) -> Key:
    """Read the keys of an age identity file, or one ssh key. Raises Invalid."""
    age = import_age()
    try:
        content = path.read_bytes()
        if b"PRIVATE KEY-----" in content:
            return Key([age.ssh.Identity.from_buffer(content)])
        lines = [line.strip() for line in content.decode().splitlines()]
        found = [age.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (age.IdentityError, UnicodeDecodeError, ValueError) as error:
        raise Invalid(f"{path} is not an identity file of age.", hint="'age-keygen' makes one.") from error
    if not found:
        raise Invalid(f"There is no key in {path}.", hint="Name the file that 'age-keygen' made.")
    return Key(found)
