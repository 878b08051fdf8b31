"""The keys of object storage among the secrets."""

from __future__ import annotations

from collections.abc import Mapping

from everturn.domain.secrets import Secrets
from everturn.store.blobs.address import StorageKeys

KIND = "storage"
ACCESS_KEY_ID = "aws_access_key_id"
SECRET_ACCESS_KEY = "aws_secret_access_key"  # noqa: S105 - the name of a secret
NAMES = (ACCESS_KEY_ID, SECRET_ACCESS_KEY)


def find_storage_keys(secrets: Secrets, environ: Mapping[str, str]) -> StorageKeys:
    """The stored keys, unless the environment has some: it wins, as it does for every other key.

    Raises SecretUnreadable.
    """
    if environ.get("AWS_ACCESS_KEY_ID"):
        return StorageKeys()
    found = [secrets.get(f"{KIND}/{name}") for name in NAMES]
    return StorageKeys(*(secret.reveal() if secret else None for secret in found))
