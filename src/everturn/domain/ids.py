"""Ids that sort by time and show their type: ``ses_…``, ``trn_…``, ``msg_…``."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from everturn.domain.clock import Clock
from everturn.domain.errors import InvalidId

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BODY_LENGTH = 26
_PREFIX_LENGTH = 4
_ORDINAL_LENGTH_MAX = 9


class Ids:
    """Makes ids from a clock and a source of randomness.

    Two ids made by one instance in the same millisecond still sort in the order in which they were
    made: the random part of the second is the first one's plus one.
    """

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._last_ms = -1
        self._last_random = 0

    def session(self) -> str:
        return "ses_" + self._body()

    def turn(self) -> str:
        return "trn_" + self._body()

    def ask(self) -> str:
        return "ask_" + self._body()

    def file(self) -> str:
        return "fil_" + self._body()

    def worker(self) -> str:
        return "wrk_" + self._body()

    def make(self, prefix: str) -> str:
        return f"{prefix}_{self._body()}"

    def _body(self) -> str:
        now = self._clock.now_ms()
        if now <= self._last_ms:
            now = self._last_ms
            self._last_random += 1
        else:
            # One bit is left free so that adding one never overflows.
            self._last_random = self._random_bits(79)
        self._last_ms = now
        return _encode((now << 80) | self._last_random)


def derive_id(prefix: str, at_ms: int, name: str) -> str:
    """The id that belongs to a name: the same for the same name and time, another for any other."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return f"{prefix}_{_encode((at_ms << 80) | int.from_bytes(digest[:10], 'big') >> 1)}"


def message_id(turn_id: str, ordinal: int) -> str:
    """The id of a turn's message. Folding the turn again gives the same id."""
    return f"msg_{turn_id[_PREFIX_LENGTH:]}-{ordinal:04d}"


def turn_id_of_message(message: str) -> str:
    """The turn a message id belongs to."""
    return "trn_" + check_message_id(message)[_PREFIX_LENGTH:].split("-", 1)[0]


def check_message_id(value: str) -> str:
    body, _, ordinal = value[_PREFIX_LENGTH:].partition("-")
    is_number = ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= _ORDINAL_LENGTH_MAX
    if not value.startswith("msg_") or not _is_body(body) or not is_number:
        raise InvalidId(value, "msg_", then="'-' and the number of the message in its turn, as in '-0000'")
    return value


def check_id(value: str, prefix: str) -> str:
    """Return the id if it has this prefix and a well-formed body; raise InvalidId otherwise."""
    if not value.startswith(prefix + "_") or not _is_body(value[len(prefix) + 1 :]):
        raise InvalidId(value, prefix + "_")
    return value


def _is_body(body: str) -> bool:
    return len(body) == _BODY_LENGTH and all(char in _ALPHABET for char in body)


def _encode(number: int) -> str:
    digits = []
    for _ in range(_BODY_LENGTH):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
