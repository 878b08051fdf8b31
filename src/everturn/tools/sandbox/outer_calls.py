"""Filter rules for the second level of the sandbox, which has no namespaces.

They cover the system calls that reach other processes, sockets of this machine, memory shared by number, and
file operations that Landlock does not restrict. Some calls are passed on to the command's ``keeper``.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import msgspec

from everturn.tools.sandbox.seccomp import (
    JUMP_BITS,
    JUMP_EQUAL,
    Step,
    argument,
    on_call,
    refusal,
)

_AND = 0x54
_PASS_ON = (0x06, 0, 0, 0x7FC00000)
_THREAD = 0x10000  # CLONE_THREAD
_UNCHANGED = 0xFFFFFFFF
_ACCESS, _TRUNCATE = 3, 0o1000
_FAST_OPEN = 0x20000000  # MSG_FASTOPEN: connects without a call of connect
_SET_OWNER = (8, 15)  # F_SETOWN, F_SETOWN_EX: a signal for any process
_SET_OWNER_IOCTL = (0x8901, 0x8902)
_SET_LEASE, _NOTIFY = 1024, 1026  # F_SETLEASE: every other open of the file waits; F_NOTIFY
# Set flags, version and project of a file that is only read, which its owner may: FS_IOC_SETFLAGS,
# FS_IOC_SETVERSION (both also for 32 bits), FS_IOC_FSSETXATTR, FS_IOC_SET_ENCRYPTION_POLICY.
_SET_OF_FILE = (0x40086602, 0x40046602, 0x40087602, 0x40047602, 0x401C5820, 0x800C6613)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TCP = 1, 5, 6
_USER = 2  # PRIO_USER; IOPRIO_WHO_USER is 3


class OuterNumbers(msgspec.Struct, frozen=True):
    """More numbers of system calls on one kind of machine."""

    seccomp: int
    forks: tuple[int, ...]  # besides clone
    chmods: dict[int, str]
    chowns: tuple[tuple[int, int], ...]  # with the position of the user; the group's is the next
    truncate: int
    attributes: tuple[int, ...]  # all that set them, and those that read them by a path
    shared: tuple[int, ...]  # System V, and POSIX message queues
    watch: int
    # socket socketpair bind listen connect
    sockets: tuple[int, int, int, int, int]
    sends: tuple[tuple[int, int], ...]  # with the position of the flags
    kills: tuple[int, ...]
    other_signals: tuple[int, ...]
    fcntl: int
    ioctl: int
    clone: int
    opens: tuple[tuple[int, int], ...]  # with the position of the flags
    of_others: tuple[int, ...]  # the first argument names the process; 0 is the caller
    of_others_by_kind: tuple[int, ...]  # a kind, then who


_MACHINES = {
    "x86_64": OuterNumbers(
        seccomp=317,
        forks=(57, 58),
        chmods={90: "chmod", 91: "fchmod", 268: "fchmodat", 452: "fchmodat2"},
        chowns=((92, 1), (93, 1), (94, 1), (260, 2)),
        truncate=76,
        attributes=(188, 189, 190, 191, 192, 194, 195, 197, 198, 199, 463, 464, 465, 466),
        shared=(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241),
        watch=254,
        sockets=(41, 53, 49, 50, 42),
        sends=((44, 3), (46, 2), (307, 3)),
        kills=(62, 234),
        other_signals=(129, 200, 297, 424),
        fcntl=72,
        ioctl=16,
        clone=56,
        opens=((2, 1), (257, 2)),
        of_others=(142, 144, 203, 302, 314),  # sched_setparam _setscheduler _setaffinity prlimit64 _setattr
        of_others_by_kind=(141, 251),  # setpriority ioprio_set
    ),
    "aarch64": OuterNumbers(
        seccomp=277,
        forks=(),
        chmods={52: "fchmod", 53: "fchmodat", 452: "fchmodat2"},
        chowns=((54, 2), (55, 1)),
        truncate=45,
        attributes=(5, 6, 7, 8, 9, 11, 12, 14, 15, 16, 463, 464, 465, 466),
        shared=(180, 181, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196),
        watch=27,
        sockets=(198, 199, 200, 201, 203),
        sends=((206, 3), (211, 2), (269, 3)),
        kills=(129, 131),
        other_signals=(130, 138, 240, 424),
        fcntl=25,
        ioctl=29,
        clone=220,
        opens=((56, 2),),
        of_others=(118, 119, 122, 261, 274),
        of_others_by_kind=(140, 30),
    ),
}


class Outside(msgspec.Struct, frozen=True):
    """What else guards a command.

    ``keeps_signals`` and ``keeps_sizes`` are True if Landlock restricts signals (from version 6) and
    truncation (from version 3). ``network``: none | gate | host.
    """

    user: int
    group: int
    keeps_signals: bool = True
    keeps_sizes: bool = True
    network: str = "none"


def outer_numbers(machine: str) -> OuterNumbers | None:
    return _MACHINES.get(machine)


def passed_on(numbers: OuterNumbers, outside: Outside) -> dict[int, str]:
    """Return the numbers of the calls that the keeper answers."""
    calls = dict.fromkeys((numbers.clone, *numbers.forks), "fork") | numbers.chmods
    if not outside.keeps_signals:
        calls |= dict.fromkeys(numbers.kills, "kill")
    if outside.network == "gate":
        calls[numbers.sockets[4]] = "connect"
    return calls


def outer_steps(numbers: OuterNumbers, outside: Outside) -> list[Step]:
    """Return the filter steps that need a keeper."""
    steps = [*_files(numbers, outside), *_processes(numbers, outside), *_network(numbers, outside.network)]
    for number in numbers.shared:
        steps += on_call(number, [refusal(errno.ENOSYS)])
    for number in (*numbers.forks, *numbers.chmods):
        steps += on_call(number, [_PASS_ON])
    return steps + on_call(numbers.clone, [argument(0), (JUMP_BITS, 1, 0, _THREAD), _PASS_ON])


def _files(numbers: OuterNumbers, outside: Outside) -> list[Step]:
    steps: list[Step] = []
    for number in numbers.attributes:
        steps += on_call(number, [refusal(errno.EOPNOTSUPP)])
    for number, position in numbers.chowns:
        checks = [*_only_if(position, (_UNCHANGED, outside.user)), refusal(errno.EPERM)]
        steps += on_call(number, checks)
        checks = [*_only_if(position + 1, (_UNCHANGED, outside.group)), refusal(errno.EPERM)]
        steps += on_call(number, checks)
    for number, position in numbers.opens:
        # Landlock requires no right to open a file neither for reading nor for writing, but ioctl works on
        # it.
        refused = [(_ACCESS, _ACCESS)]
        if not outside.keeps_sizes:
            refused.append((_ACCESS | _TRUNCATE, _TRUNCATE))
        for mask, value in refused:
            steps += on_call(
                number,
                [argument(position), (_AND, 0, 0, mask), (JUMP_EQUAL, 0, 1, value), refusal(errno.EACCES)],
            )
    if not outside.keeps_sizes:
        steps += on_call(numbers.truncate, [refusal(errno.EACCES)])
    steps += on_call(numbers.ioctl, _if_any(1, _SET_OF_FILE, errno.EOPNOTSUPP))
    steps += on_call(numbers.fcntl, _if_any(1, (_SET_LEASE, _NOTIFY), errno.EINVAL))
    # Fail as if no watches were left: programs then poll instead.
    return steps + on_call(numbers.watch, [refusal(errno.ENOSPC)])


def _processes(numbers: OuterNumbers, outside: Outside) -> list[Step]:
    steps: list[Step] = []
    for number in numbers.of_others:
        steps += on_call(number, [*_only_if(0, (0,)), refusal(errno.EPERM)])
    for number in numbers.of_others_by_kind:
        steps += on_call(number, [*_only_if(1, (0,)), refusal(errno.EPERM)])
    priority, io_priority = numbers.of_others_by_kind
    for number, kind in ((priority, _USER), (io_priority, _USER + 1)):
        steps += on_call(number, [argument(0), (JUMP_EQUAL, 0, 1, kind), refusal(errno.EPERM)])
    if outside.keeps_signals:
        return steps
    for number in numbers.kills:
        steps += on_call(number, [*_only_if(0, (0,)), _PASS_ON])
    for number in numbers.other_signals:
        steps += on_call(number, [refusal(errno.ENOSYS)])
    steps += on_call(numbers.fcntl, _if_any(1, _SET_OWNER, errno.EPERM))
    return steps + on_call(numbers.ioctl, _if_any(1, _SET_OWNER_IOCTL, errno.EPERM))


def _network(numbers: OuterNumbers, network: str) -> list[Step]:
    """Restrict sockets: one with a path reaches servers on this machine, and Landlock does not restrict
    it."""
    socket, pair, bind, listen, connect = numbers.sockets
    families = {"none": (), "gate": (_INET,), "host": (_INET, _INET6, _NETLINK)}[network]
    steps = on_call(socket, [*_only_if(0, families), refusal(errno.EAFNOSUPPORT)])
    # A pair of datagram sockets can send to any other.
    steps += on_call(pair, [*_only_if(0, (_UNIX,)), refusal(errno.EAFNOSUPPORT)])
    kinds = (_STREAM, _SEQPACKET)
    steps += on_call(pair, [*_only_if(1, kinds, 0xF), refusal(errno.EPROTONOSUPPORT)])
    if network == "host":
        return steps
    for number in (bind, listen):
        steps += on_call(number, [refusal(errno.EACCES)])
    if network == "none":
        return steps + on_call(connect, [refusal(errno.EACCES)])
    steps += on_call(socket, [*_only_if(1, (_STREAM,), 0xF), refusal(errno.EPROTONOSUPPORT)])
    steps += on_call(socket, [*_only_if(2, (0, _TCP)), refusal(errno.EPROTONOSUPPORT)])
    for number, position in numbers.sends:
        steps += on_call(
            number, [argument(position), (JUMP_BITS, 0, 1, _FAST_OPEN), refusal(errno.EOPNOTSUPP)]
        )
    return steps + on_call(connect, [_PASS_ON])


def _only_if(position: int, values: Sequence[int], mask: int = 0) -> list[Step]:
    """Skip the one step that follows if the argument is among these."""
    tests: list[Step] = [(JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    masked: list[Step] = [(_AND, 0, 0, mask)] if mask else []
    return [argument(position), *masked, *tests]


def _if_any(position: int, values: Sequence[int], error: int) -> list[Step]:
    tests: list[Step] = []
    for value in values:
        tests += [(JUMP_EQUAL, 0, 1, value), refusal(error)]
    return [argument(position), *tests]
