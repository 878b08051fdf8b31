"""Enums whose values are stored and sent."""

from __future__ import annotations

from enum import StrEnum
from typing import Self, TypeVar

from everturn.domain.errors import Invalid

Word = TypeVar("Word", bound=StrEnum)


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

    @property
    def is_known(self) -> bool:
        """False for a word of a newer release."""
        return self in tuple(type(self))


def read_word(kind: type[Word], value: str, field: str) -> Word:
    """The member with this value. Raises Invalid, which names the field and the possible values."""
    for word in kind:
        if word == value:
            return word
    *others, last = kind
    hint = f"Use {', '.join(others)} or {last}."
    raise Invalid(f"{field} is {str(value)[:40]!r}, which is not a known value.", hint=hint)
