"""The system calls that a sandboxed process may not make, as a filter program for the kernel.

It is a deny list, because compilers, interpreters and debuggers must work. It refuses calls that change the
machine, calls that reach outside the namespaces, and kernel features that ordinary programs do not need. A
filter cannot read arguments behind a pointer, so such calls fail with "no such call" and programs use the
older form.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Sequence

import msgspec

# Instructions and return values of classic BPF; linux/bpf_common.h, linux/seccomp.h.
_LOAD, JUMP_EQUAL, _JUMP_MORE, JUMP_BITS, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_LAST = 466  # removexattrat; calls that newer kernels add are refused

_NAMESPACES = 0x7E020000  # CLONE_NEWNS and the other flags that clone(2) accepts
_NEW_TIME = 0x80  # CLONE_NEWTIME, unshare(2) only
_SET_ID = 0o6000  # S_ISUID, S_ISGID
_MAKES = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# PUNCH_HOLE, COLLAPSE_RANGE, INSERT_RANGE. Every other mode of fallocate(2) can take all free blocks before
# the disk is sampled again. If it is refused, programs write instead, which is slow enough to be stopped.
_TAKES_NO_BLOCKS = 0x2A
_RESERVATIONS = (0x40305828, 0x4030582A, 0x40305839)  # FS_IOC_RESVSP, FS_IOC_RESVSP64, FS_IOC_ZERO_RANGE
# Bytes of a System V segment: what PostgreSQL needs for its lock. All 4096 segments are 16 MiB.
_SHARED_SEGMENT = 4096
# AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. A network namespace does not contain AF_VSOCK.
_FAMILIES = (0, 1, 2, 10, 16)
# PER_LINUX, UNAME26, ADDR_NO_RANDOMIZE (debuggers), and the query of the current value.
_PERSONALITIES = (0, 0x20000, 0x40000, 0xFFFFFFFF)

# The same numbers on every machine.
_NOT_PERMITTED = {
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "open_tree": 428,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "set_mempolicy_home_node": 450,
}
_NO_SUCH_CALL = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "clone3": 435,  # its flags are behind a pointer
    "openat2": 437,  # so is its mode
    "memfd_secret": 447,
}
_FCHMODAT2 = 452


class CallNumbers(msgspec.Struct, frozen=True):
    """The numbers of system calls on one kind of machine."""

    architecture: int
    not_permitted: tuple[int, ...]
    clone: int
    unshare: int
    chmods: tuple[tuple[int, int], ...]  # with the position of the mode
    opens: tuple[tuple[int, int, int], ...]  # with the positions of flags and mode
    ioctl: int
    fallocate: int
    sockets: tuple[int, int]
    personality: int
    memfd_create: int
    shmget: int
    msgget: int
    keyctl: int


_MACHINES = {
    "x86_64": CallNumbers(
        architecture=0xC000003E,
        not_permitted=(
            *(134, 136, 139, 153, 154, 155, 156),  # uselib ustat sysfs vhangup modify_ldt pivot_root _sysctl
            *(161, 163, 164, 165, 166),  # chroot acct settimeofday mount umount2
            *(
                167,
                168,
                169,
                170,
                171,
                172,
                173,
            ),  # swapon swapoff reboot sethostname setdomainname iopl ioperm
            *(103, 174, 175, 176, 177, 178, 179, 180),  # syslog, modules, quotactl nfsservctl
            *(
                212,
                227,
                246,
                305,
                313,
                320,
            ),  # lookup_dcookie clock_*time kexec_load finit_module kexec_file_load
            *(237, 238, 239, 256, 279),  # mbind *_mempolicy migrate_pages move_pages
            *(248, 249, 250),  # add_key request_key keyctl
            *(298, 300, 304, 308, 321, 323),  # perf fanotify_init open_by_handle_at setns bpf userfaultfd
        ),
        clone=56,
        unshare=272,
        chmods=((90, 1), (91, 1), (268, 2), (133, 1), (259, 2), (85, 1)),
        opens=((2, 1, 2), (257, 2, 3)),
        ioctl=16,
        fallocate=285,
        sockets=(41, 53),
        personality=135,
        memfd_create=319,
        shmget=29,
        msgget=68,
        keyctl=250,
    ),
    "aarch64": CallNumbers(
        architecture=0xC00000B7,
        not_permitted=(
            *(18, 39, 40, 41, 42, 51, 58, 60),  # lookup_dcookie umount2 mount pivot_root nfsservctl chroot
            *(89, 104, 105, 106, 112, 116),  # acct kexec_load init_module delete_module clock_settime syslog
            *(142, 161, 162, 170, 224, 225),  # reboot set*name settimeofday swapon swapoff
            *(217, 218, 219),  # add_key request_key keyctl
            *(235, 236, 237, 238, 239),  # mbind *_mempolicy migrate_pages move_pages
            *(241, 262, 265, 266, 268),  # perf fanotify_init open_by_handle_at clock_adjtime setns
            *(273, 280, 282, 294),  # finit_module bpf userfaultfd kexec_file_load
        ),
        clone=220,
        unshare=97,
        chmods=((52, 1), (53, 2), (33, 2)),
        opens=((56, 2, 3),),
        ioctl=29,
        fallocate=47,
        sockets=(198, 199),
        personality=92,
        memfd_create=279,
        shmget=194,
        msgget=186,
        keyctl=219,
    ),
}

Step = tuple[int, int, int, int]


def machine(name: str | None = None) -> CallNumbers | None:
    """Return the numbers of this machine; None if they are not known, and then there is no filter."""
    return _MACHINES.get(name or platform.machine())


def program(numbers: CallNumbers, *, counts_memory: bool, more: Sequence[Step] = ()) -> bytes:
    """Return the filter.

    ``counts_memory``: a control group also counts memory that belongs to no process. ``more``: extra steps,
    for calls that the others allow.
    """
    steps: list[Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        # Other call interfaces of the same machine (32 bits on x86_64) use other numbers.
        (JUMP_EQUAL, 1, 0, numbers.architecture),
        refusal(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_MORE, 0, 1, _LAST),  # also x32, whose numbers have a high bit set
        refusal(errno.ENOSYS),
    ]
    for number in (*numbers.not_permitted, *_NOT_PERMITTED.values()):
        steps += [(JUMP_EQUAL, 0, 1, number), refusal(errno.EPERM)]
    uncounted = () if counts_memory else (numbers.memfd_create, numbers.msgget)
    unknown = (*_NO_SUCH_CALL.values(), *uncounted)
    for number in unknown:
        steps += [(JUMP_EQUAL, 0, 1, number), refusal(errno.ENOSYS)]
    if not counts_memory:
        steps += _if_larger(numbers.shmget, 1, _SHARED_SEGMENT, errno.ENOSPC)
    steps += _if_bits(numbers.clone, 0, _NAMESPACES)
    steps += _if_bits(numbers.unshare, 0, _NAMESPACES | _NEW_TIME)
    for number, mode in (*numbers.chmods, (_FCHMODAT2, 2)):
        steps += _if_bits(number, mode, _SET_ID)
    for number, flags, mode in numbers.opens:
        steps += _if_made_with(number, flags, mode)
    steps += _if_among(numbers.ioctl, 1, (_TIOCSTI, _TIOCLINUX), errno.EPERM)
    steps += _if_among(numbers.ioctl, 1, _RESERVATIONS, errno.EOPNOTSUPP)
    steps += _unless_bits(numbers.fallocate, 1, _TAKES_NO_BLOCKS, errno.EOPNOTSUPP)
    for number in numbers.sockets:
        steps += _unless_among(number, 0, _FAMILIES, errno.EAFNOSUPPORT)
    steps += _unless_among(numbers.personality, 0, _PERSONALITIES, errno.EPERM)
    steps += [*more, (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def refusal(error: int) -> Step:
    return (_RETURN, 0, 0, _ERRNO | error)


def argument(position: int) -> Step:
    """Load the lower half of an argument. The kernel ignores the upper half in the calls above."""
    return (_LOAD, 0, 0, 16 + 8 * position)


def on_call(number: int, steps: Sequence[Step]) -> list[Step]:
    """Run the steps for one call, then load its number again."""
    inner = [*steps, (_LOAD, 0, 0, _NUMBER)]
    return [(JUMP_EQUAL, 0, len(inner), number), *inner]


def _if_bits(number: int, position: int, bits: int) -> list[Step]:
    return on_call(number, [argument(position), (JUMP_BITS, 0, 1, bits), refusal(errno.EPERM)])


def _if_larger(number: int, position: int, most: int, error: int) -> list[Step]:
    """Refuse sizes (64 bits) above this."""
    upper = (_LOAD, 0, 0, 20 + 8 * position)
    larger = [(_JUMP_MORE, 0, 1, most), refusal(error)]
    return on_call(number, [upper, (JUMP_EQUAL, 1, 0, 0), refusal(error), argument(position), *larger])


def _if_made_with(number: int, flags: int, mode: int) -> list[Step]:
    """Refuse to create a file with a set-id bit. Only a call that creates a file has a meaningful mode."""
    return on_call(
        number,
        [
            argument(flags),
            (JUMP_BITS, 0, 3, _MAKES),
            argument(mode),
            (JUMP_BITS, 0, 1, _SET_ID),
            refusal(errno.EPERM),
        ],
    )


def _unless_bits(number: int, position: int, bits: int, error: int) -> list[Step]:
    return on_call(number, [argument(position), (JUMP_BITS, 1, 0, bits), refusal(error)])


def _if_among(number: int, position: int, values: Sequence[int], error: int) -> list[Step]:
    tests: list[Step] = []
    for value in values:
        tests += [(JUMP_EQUAL, 0, 1, value), refusal(error)]
    return on_call(number, [argument(position), *tests])


def _unless_among(number: int, position: int, values: Sequence[int], error: int) -> list[Step]:
    tests: list[Step] = [(JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return on_call(number, [argument(position), *tests, refusal(error)])
