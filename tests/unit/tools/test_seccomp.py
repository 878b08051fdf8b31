from __future__ import annotations

import errno
import struct

import pytest

from everturn.tools.sandbox.seccomp import machine, program

ALLOWED = 0x7FFF0000


def _answer(
    name: str, number: int, *arguments: int, architecture: int | None = None, counts_memory: bool = True
) -> int:
    """What the kernel would do: 0 to allow, else the error. Runs the program as the kernel runs it."""
    numbers = machine(name)
    assert numbers is not None
    steps = list(struct.iter_unpack("=HBBI", program(numbers, counts_memory=counts_memory)))
    values = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture or numbers.architecture, 0, *values)
    loaded = position = 0
    while True:
        code, yes, no, value = steps[position]
        position += 1
        if code == 0x06:
            return 0 if value == ALLOWED else value & 0xFFFF
        if code == 0x20:
            loaded = struct.unpack_from("<I", data, value)[0]
        else:
            test = {0x15: loaded == value, 0x25: loaded > value, 0x45: bool(loaded & value)}[code]
            position += yes if test else no


@pytest.mark.parametrize(
    ("name", "number", "arguments", "error"),
    [
        ("x86_64", 0, (), 0),  # read
        ("x86_64", 257, (0, 0, 0o102, 0o644), 0),  # openat makes a file
        ("x86_64", 257, (0, 0, 0o102, 0o4755), errno.EPERM),
        ("x86_64", 257, (0, 0, 0, 0o4755), 0),  # makes none: the mode is noise
        ("x86_64", 90, (0, 0o755), 0),
        ("x86_64", 90, (0, 0o2755), errno.EPERM),
        ("x86_64", 56, (0x1200011,), 0),  # clone as fork does it
        ("x86_64", 56, (0x10000011,), errno.EPERM),  # with a user namespace
        ("x86_64", 41, (1,), 0),
        ("x86_64", 41, (40,), errno.EAFNOSUPPORT),
        ("x86_64", 41, (1 << 32 | 40,), errno.EAFNOSUPPORT),  # the upper half is not looked at by the kernel
        ("x86_64", 16, (0, 0x5401), 0),
        ("x86_64", 16, (0, 1 << 32 | 0x5412), errno.EPERM),
        ("x86_64", 135, (0xFFFFFFFF,), 0),
        ("x86_64", 135, (0x0400000,), errno.EPERM),  # READ_IMPLIES_EXEC
        ("x86_64", 285, (3, 0, 0, 1 << 33), errno.EOPNOTSUPP),  # fallocate takes blocks
        ("x86_64", 285, (3, 1, 0, 1), errno.EOPNOTSUPP),  # beyond the file's end
        ("x86_64", 285, (3, 0x11, 0, 1), errno.EOPNOTSUPP),  # as zeros
        ("x86_64", 285, (3, 3, 0, 1 << 33), 0),  # makes a hole: gives blocks back
        ("x86_64", 16, (3, 0x4030582A), errno.EOPNOTSUPP),  # FS_IOC_RESVSP64
        ("x86_64", 16, (3, 0x40305839), errno.EOPNOTSUPP),  # FS_IOC_ZERO_RANGE
        ("aarch64", 47, (3, 0, 0, 4096), errno.EOPNOTSUPP),
        ("x86_64", 0x40000000, (), errno.ENOSYS),  # x32
        ("aarch64", 63, (), 0),
        ("aarch64", 219, (), errno.EPERM),
        ("aarch64", 56, (0, 0, 0o102, 0o4755), errno.EPERM),
        ("aarch64", 198, (2,), 0),
    ],
)
def test_it_refuses_only_what_it_should(
    name: str, number: int, arguments: tuple[int, ...], error: int
) -> None:
    assert _answer(name, number, *arguments) == error


def test_calls_of_another_kind_of_machine_are_refused() -> None:
    assert (
        _answer("x86_64", 0, architecture=0x40000003) == errno.ENOSYS
    )  # 32 bits, where 0 means restart_syscall


def test_files_in_memory_are_refused_where_nothing_counts_them() -> None:
    assert _answer("x86_64", 319, counts_memory=True) == 0
    assert _answer("x86_64", 319, counts_memory=False) == errno.ENOSYS

    for name, shmget, msgget in (("x86_64", 29, 68), ("aarch64", 194, 186)):
        assert _answer(name, shmget, 0, 1 << 40) == _answer(name, msgget) == 0
        assert _answer(name, shmget, 0, 4096, counts_memory=False) == 0
        assert _answer(name, shmget, 0, 4097, counts_memory=False) == errno.ENOSPC
        assert _answer(name, shmget, 0, 1 << 40, counts_memory=False) == errno.ENOSPC
        assert _answer(name, msgget, counts_memory=False) == errno.ENOSYS


def test_a_machine_whose_numbers_are_unknown_has_no_filter() -> None:
    assert machine("riscv64") is None
