"""Trees: the content of a workspace as values.

Each folder is one tree, stored as a blob. It names its files, links and folders by the hash of their bytes,
so a folder that did not change is stored once, however many checkpoints share it. What a checkpoint leaves
out is an entry too, so that comparing or restoring a tree can tell "did not exist" from "was not recorded".
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final

import msgspec

from everturn.domain.errors import TreeUnreadable
from everturn.domain.words import Words

MODE_BITS: Final = 0o777  # without setuid, setgid, sticky: a restored file must not give more rights
_VERSION: Final = 1


class Kind(StrEnum):
    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    LEFT_OUT = "left_out"


class Reason(Words):
    """Why something in the workspace is not in its checkpoint."""

    IGNORED = "ignored"  # by an ignore file or a setting
    DEPENDENCIES = "dependencies"  # a folder of installed packages
    CACHE = "cache"
    GIT = "git"  # the .git of a project
    TOO_LARGE = "too_large"
    TOO_MANY = "too_many"
    TOO_DEEP = "too_deep"
    UNREADABLE = "unreadable"
    CHANGING = "changing"  # it was written to each time it was read
    SPECIAL = "special"  # a socket, a pipe or a device
    MOUNT = "mount"  # another file system
    PARTIAL = "partial"  # a file that was being written; only an index lists it, no tree


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One name in a folder. ``sha256``: of the file's bytes, the link's target or the folder's tree;
    ``size`` is that of the same bytes."""

    name: bytes
    kind: Kind
    mode: int = 0
    size: int = 0
    sha256: str = ""
    reason: Reason | None = None

    def is_same(self, other: Entry | None) -> bool:
        """True if restoring the one would give the other."""
        return other is not None and (self.kind, self.mode, self.sha256) == (
            other.kind,
            other.mode,
            other.sha256,
        )


class Tree(msgspec.Struct, frozen=True, array_like=True):
    """A folder's entries, sorted by name. ``unlisted`` counts names beyond the limit, of which nothing is
    known."""

    entries: tuple[Entry, ...] = ()
    unlisted: int = 0
    version: int = _VERSION


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Tree)


def encode_tree(tree: Tree) -> bytes:
    """The same tree always gives the same bytes."""
    return _encoder.encode(tree)


def decode_tree(data: bytes, sha256: str) -> Tree:
    """Raises TreeUnreadable."""
    try:
        tree = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise TreeUnreadable(f"The tree {sha256} of a checkpoint cannot be read: {error}.") from error
    if tree.version != _VERSION:
        raise TreeUnreadable(f"The tree {sha256} of a checkpoint has the unknown format {tree.version}.")
    return tree


def hash_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


EMPTY_TREE: Final = hash_bytes(encode_tree(Tree()))  # of a folder without anything in it


def show_path(path: bytes) -> str:
    """A path for people and JSON. A name need not be UTF-8; bytes that are not are written as ``\\xNN``."""
    return path.decode("utf-8", "backslashreplace")
