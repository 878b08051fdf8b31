"""The address of object storage, and the keys for it."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import msgspec

from everturn.domain.errors import Invalid

SCHEME = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_PREFIX = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")
_OPTIONS = frozenset({"endpoint", "region"})


class StorageAddress(msgspec.Struct, frozen=True):
    """``s3://BUCKET/PREFIX?endpoint=URL&region=NAME``; everything after the bucket may be left out."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None


def parse_address(address: str) -> StorageAddress:
    """Raises Invalid."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = parts.path.strip("/")
    endpoint = options.get("endpoint")
    if (
        parts.scheme != "s3"
        or parts.fragment
        or not _BUCKET.fullmatch(parts.netloc)
        or (prefix and not _PREFIX.fullmatch(prefix))
        or ".." in prefix.split("/")
        or not options.keys() <= _OPTIONS
        or (endpoint is not None and not _is_web_address(endpoint))
    ):
        raise Invalid(
            f"{_without_account(address)!r} is not an address of object storage.",
            hint="Write s3://BUCKET/PREFIX; for another server than Amazon's add ?endpoint=https://HOST.",
            key="url",
        )
    return StorageAddress(parts.netloc, prefix, endpoint, options.get("region"))


def _is_web_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _without_account(address: str) -> str:
    """The address without a name and password that do not belong there."""
    return re.sub(r"//[^/@]*@", "//…@", address)


class StorageKeys(msgspec.Struct, frozen=True):
    """What requests are signed with. None: as the environment of the process says."""

    access_key_id: str | None = None
    secret_access_key: str | None = None

    def __repr__(self) -> str:
        return "StorageKeys(…)"
