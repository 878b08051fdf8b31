"""Enums whose values are stored and sent."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Words(StrEnum):
    """A set of words that is closed in this release and may grow in the next.

    A word that a newer release has written is carried through as it is: it decodes to a member that equals
    none of ours and encodes to the same bytes. Otherwise one new word would make a journal unreadable.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = "UNKNOWN"
        word._value_ = value
        return word
