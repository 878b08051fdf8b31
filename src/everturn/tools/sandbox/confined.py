"""Drops all rights in a command's process before it becomes the command. Standard library only."""

from __future__ import annotations

import _socket
import array
import ctypes
import os
import resource
import struct
from typing import Any

from everturn.tools.sandbox.kernel_calls import NO_NEW_PRIVS, PDEATHSIG, check, prctl

NICE = 10
CHANGED = "The project was changed while the call started."
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _BENEATH = 444, 445, 446, 1
_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 8, 32
_TMP = "/tmp"  # noqa: S108 - a variable with this value gets the scratch folder instead


class ConfinedCommand:
    # ``Any``: as in the shim of jobs, no library is imported that could validate the data.
    def __init__(self, spec: dict[str, Any], scratch: str) -> None:
        self._spec = spec
        self._scratch = scratch
        self._libc = ctypes.CDLL(None, use_errno=True)

    def become(self, ours: _socket.socket) -> None:
        """Drop all rights in the child, then become the command. Never returns."""
        try:
            keeper = os.getppid()
            prctl(self._libc, PDEATHSIG, 9)
            if os.getppid() != keeper or keeper == 1:
                os._exit(125)
            os.setsid()
            _prefer_to_kill()
            _limit(self._spec["limits"])
            os.chdir(self._spec["workspace"])
            listener = self._confine()
            fds = array.array("i", [listener])
            ours.sendmsg([b"\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds.tobytes())])
            if not ours.recv(1):
                os._exit(125)
            os.closerange(3, 1 << 20)
            os.execvpe(self._spec["words"][0], self._spec["words"], self._environment())  # noqa: S606
        except OSError as error:
            os.write(2, f"The command could not be started: {error.strerror or error}\n".encode())
        finally:
            os._exit(126)

    def _environment(self) -> dict[str, str]:
        given: dict[str, str] = self._spec["env"]
        env = {name: self._scratch if value == _TMP else value for name, value in given.items()}
        if self._spec["gate"]:
            env.update(dict.fromkeys(self._spec["proxies"], f"http://127.0.0.1:{self._spec['port']}"))
        return {**env, "TMPDIR": self._scratch}

    def _confine(self) -> int:
        """Put this process under Landlock and the filter; return the descriptor of the filter's listener."""
        spec, libc = self._spec, self._libc
        check(prctl(libc, NO_NEW_PRIVS, 1), "no new privileges")
        handled = struct.pack("=QQQ", spec["handled"], spec["handled_net"], spec["scoped"])[: spec["size"]]
        ruleset = check(
            libc.syscall(
                ctypes.c_long(_CREATE_RULESET), handled, ctypes.c_size_t(len(handled)), ctypes.c_uint(0)
            ),
            "a Landlock ruleset",
        )
        for path, rights, identity, is_needed in (
            *spec["rules"],
            (self._scratch, spec["scratch_rights"], "", True),
        ):
            self._allow(ruleset, path, rights, identity, is_needed)
        check(
            libc.syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint(0)), "Landlock"
        )
        return self._filter()

    def _allow(self, ruleset: int, path: str, rights: int, identity: str, is_needed: bool) -> None:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            if is_needed:
                raise
            return
        found = os.fstat(place)
        if identity and identity != f"{found.st_dev}:{found.st_ino}":
            raise OSError(CHANGED)
        if (found.st_mode & 0o170000) != 0o040000:
            rights &= self._spec["file_rights"]
        rule = struct.pack("=Qi", rights, place)
        check(
            self._libc.syscall(
                ctypes.c_long(_ADD_RULE),
                ctypes.c_int(ruleset),
                ctypes.c_int(_BENEATH),
                rule,
                ctypes.c_uint(0),
            ),
            f"a Landlock rule for {path}",
        )
        os.close(place)

    def _filter(self) -> int:
        program = self._spec["filter"]
        steps = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
        number = ctypes.c_long(self._spec["seccomp"])
        # Keeps a signal from interrupting a call that was received. Older kernels lack the flag.
        for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
            listener = self._libc.syscall(number, ctypes.c_uint(_FILTER), ctypes.c_uint(flags), header)
            if listener >= 0:
                return int(listener)
        return check(-1, "a filter of system calls")


def _prefer_to_kill() -> None:
    """Make the kernel kill the command, not its keeper, when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")
    except OSError:
        return  # it is higher already


def _limit(limits: dict[int, int]) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
