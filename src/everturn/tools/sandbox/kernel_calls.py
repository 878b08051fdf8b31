"""System calls that Python does not wrap. Standard library only: keepers import it."""

from __future__ import annotations

import ctypes
import os

PDEATHSIG, CAPBSET_DROP, SUBREAPER, NO_NEW_PRIVS = 1, 24, 36, 38


class CallRefused(Exception):
    """A call that fails with this error."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


def prctl(libc: ctypes.CDLL, option: int, value: int) -> int:
    result: int = libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3)
    return result


def check(result: int, what: str) -> int:
    if result >= 0:
        return result
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")
