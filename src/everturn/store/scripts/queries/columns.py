"""The base of the rows that queries give."""

from __future__ import annotations

import msgspec


class Columns(msgspec.Struct, frozen=True, gc=False):
    """A row. ``gc`` off: it holds plain values only, and costs half as much without."""
