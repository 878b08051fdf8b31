"""Encrypts a key with a passphrase. Standard input: the passphrase, a line feed, the key."""

from __future__ import annotations

import sys

import pyrage


def main() -> None:
    passphrase, _, secret = sys.stdin.buffer.read().decode().partition("\n")
    wrapped = pyrage.passphrase.encrypt(secret.encode(), passphrase)
    if pyrage.passphrase.decrypt(wrapped, passphrase) != secret.encode():
        raise SystemExit("the encrypted key cannot be read back")
    sys.stdout.buffer.write(wrapped)


if __name__ == "__main__":
    main()
