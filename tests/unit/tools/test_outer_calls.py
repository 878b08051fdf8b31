"""The filter of the second level, run in an interpreter: also for a machine that is not this one."""

from __future__ import annotations

import errno
import struct

import pytest

from everturn.tools.sandbox.outer_calls import Outside, outer_numbers, outer_steps, passed_on
from everturn.tools.sandbox.seccomp import machine, program

_PASSED_ON = "passed on"
_OLD = Outside(1000, 1000, keeps_signals=False, keeps_sizes=False)
_NEW = Outside(1000, 1000)
_GATED = Outside(1000, 1000, network="gate")
_HOST = Outside(1000, 1000, network="host")


def _answer(name: str, outside: Outside, number: int, arguments: tuple[int, ...]) -> int | str:
    """What the kernel would do: 0 to allow, else the error. Runs the program as the kernel runs it."""
    numbers, outer = machine(name), outer_numbers(name)
    assert numbers is not None
    assert outer is not None
    rules = program(numbers, counts_memory=True, more=outer_steps(outer, outside))
    steps = list(struct.iter_unpack("=HBBI", rules))
    values = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, numbers.architecture, 0, *values)
    loaded = position = 0
    while True:
        code, yes, no, value = steps[position]
        position += 1
        if code == 0x06:
            if value == 0x7FC00000:
                assert number in passed_on(outer, outside)
                return _PASSED_ON
            return 0 if value == 0x7FFF0000 else int(value & 0xFFFF)
        if code == 0x20:
            loaded = struct.unpack_from("<I", data, value)[0]
        elif code == 0x54:
            loaded &= value
        else:
            test = {0x15: loaded == value, 0x25: loaded > value, 0x45: bool(loaded & value)}[code]
            position += yes if test else no


@pytest.mark.parametrize(
    ("outside", "x86_64", "aarch64", "arguments", "answer"),
    [
        (_NEW, 0, 63, (), 0),  # read
        (_NEW, 56, 220, (0x11,), _PASSED_ON),  # clone as fork does it
        (_NEW, 56, 220, (0x3D0F00,), 0),  # a thread
        (_NEW, 56, 220, (0x10000011,), errno.EPERM),  # a user namespace
        (_NEW, 91, 52, (3, 0o755), _PASSED_ON),  # fchmod
        (_NEW, 91, 52, (3, 0o4755), errno.EPERM),
        (_NEW, 93, 55, (3, 1000, 0xFFFFFFFF), 0),  # fchown to itself
        (_NEW, 93, 55, (3, 1001, 1000), errno.EPERM),
        (_NEW, 93, 55, (3, 1000, 27), errno.EPERM),
        (_NEW, 190, 7, (), errno.EOPNOTSUPP),  # fsetxattr
        (_NEW, 191, 8, (), errno.EOPNOTSUPP),  # getxattr, of any path
        (_NEW, 195, 12, (), errno.EOPNOTSUPP),  # llistxattr
        (_NEW, 193, 10, (), 0),  # fgetxattr, of a file that could be opened
        (_NEW, 16, 29, (3, 0x40086602), errno.EOPNOTSUPP),  # FS_IOC_SETFLAGS
        (_NEW, 16, 29, (3, 0x80086601), 0),  # FS_IOC_GETFLAGS
        (_NEW, 72, 25, (3, 1024, 1), errno.EINVAL),  # F_SETLEASE
        (_NEW, 72, 25, (3, 1026, 1), errno.EINVAL),  # F_NOTIFY
        (_NEW, 30, 196, (), errno.ENOSYS),  # shmat
        (_NEW, 302, 261, (0,), 0),  # prlimit64 of itself
        (_NEW, 302, 261, (7,), errno.EPERM),
        (_NEW, 141, 140, (0, 7), errno.EPERM),  # setpriority of another process
        (_NEW, 141, 140, (2, 0), errno.EPERM),  # of a user
        (_NEW, 257, 56, (0, 0, 3), errno.EACCES),  # openat for ioctl only
        (_NEW, 257, 56, (0, 0, 0o1000), 0),  # to cut: Landlock's
        (_OLD, 257, 56, (0, 0, 0o1000), errno.EACCES),
        (_OLD, 257, 56, (0, 0, 0o1001), 0),
        (_NEW, 76, 45, (), 0),  # truncate
        (_OLD, 76, 45, (), errno.EACCES),
        (_NEW, 62, 129, (7, 9), 0),  # kill: Landlock's
        (_OLD, 62, 129, (7, 9), _PASSED_ON),
        (_OLD, 62, 129, (0, 9), 0),  # the own group
        (_OLD, 424, 424, (), errno.ENOSYS),  # pidfd_send_signal
        (_OLD, 72, 25, (3, 8), errno.EPERM),  # F_SETOWN
        (_OLD, 72, 25, (3, 1), 0),
        (_NEW, 41, 198, (1, 1), errno.EAFNOSUPPORT),  # socket: a path
        (_NEW, 41, 198, (2, 1), errno.EAFNOSUPPORT),
        (_NEW, 53, 199, (1, 0o2000001), 0),  # a pair, closed at exec
        (_NEW, 53, 199, (1, 2), errno.EPROTONOSUPPORT),
        (_NEW, 42, 203, (), errno.EACCES),  # connect
        (_GATED, 41, 198, (2, 0o4001, 6), 0),
        (_GATED, 41, 198, (2, 2), errno.EPROTONOSUPPORT),
        (_GATED, 41, 198, (2, 1, 262), errno.EPROTONOSUPPORT),
        (_GATED, 41, 198, (1, 1), errno.EAFNOSUPPORT),
        (_GATED, 42, 203, (), _PASSED_ON),
        (_GATED, 50, 201, (), errno.EACCES),  # listen
        (_GATED, 44, 206, (3, 0, 0, 0x20000000), errno.EOPNOTSUPP),  # sendto that connects
        (_GATED, 44, 206, (3, 0, 0, 0x4000), 0),
        (_HOST, 41, 198, (10, 2), 0),
        (_HOST, 41, 198, (1, 1), errno.EAFNOSUPPORT),
        (_HOST, 42, 203, (), 0),
    ],
)
def test_each_call_is_allowed_refused_or_passed_on(
    outside: Outside, x86_64: int, aarch64: int, arguments: tuple[int, ...], answer: int | str
) -> None:
    assert _answer("x86_64", outside, x86_64, arguments) == answer
    assert _answer("aarch64", outside, aarch64, arguments) == answer
