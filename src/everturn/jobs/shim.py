"""The parent of one job: a program of its own, which needs no server.

Usage: shim.py FOLDER

It starts the command that the file ``job`` in the folder describes, enforces its limits, writes its output
and its end to files there, and ends. The server took the lock of the folder, and this process inherits it: it
is free when the process is gone, and never before. The pipes that ``job`` names are inherited too.

Until the command runs, only modules are imported that cost nothing: the tool call waits for that. ``json``,
``re`` and ``signal`` would double the time that the shim takes.
"""

from __future__ import annotations

import marshal
import os
import resource
import select
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everturn.jobs.watch import JobWatch

_PIECE_BYTES = 64 * 1024
_SYNC_EVERY_S = 1.0
_LINGER_S = 0.2  # for output that is still in the pipe when the command has ended
_END_AGAIN_S = 1.0  # between two tries to write the end on a full disk
SEGMENTS = 4  # the first and the last three are kept

LOCK, SPEC, STOP, END, LOG = "lock", "job", "stop", "end.json", "shim.log"
PROCESSES = "processes"  # the shim and the first process of its command, each with its start time
KEPT = "kept\n"  # after them, if the second is a keeper: it ends the others when it is asked to
FIRST_OUTPUT = "output.0"  # made before the command is started


class Output:
    """The output in files of one size: ``output.0`` is the first part. At most ``SEGMENTS`` are kept."""

    def __init__(self, folder: str, bytes_max: int) -> None:
        self._folder = folder
        self._size = max(1, bytes_max // SEGMENTS)
        self._number = 0
        self._file = self._open()
        self._is_synced = True
        self.total = 0
        self.error = ""

    def add(self, data: bytes) -> None:
        """Store more output. On a full disk the job goes on without; ``error`` says why."""
        if self.error:
            return
        try:
            self._add(data)
        except OSError as error:
            self.error = error.strerror or str(error)

    def _add(self, data: bytes) -> None:
        while data:
            room = (self._number + 1) * self._size - self.total
            if room == 0:
                self._next()
                continue
            _write_all(self._file, data[:room])
            self._is_synced = False
            self.total += len(data[:room])
            data = data[room:]

    def sync(self) -> None:
        """Like ``add``: if the sync fails, ``error`` says so and the job goes on."""
        if self._is_synced or self.error:
            return
        try:
            os.fdatasync(self._file)
            self._is_synced = True
        except OSError as error:
            self.error = error.strerror or str(error)

    def _next(self) -> None:
        self.sync()
        os.close(self._file)
        self._number += 1
        self._file = self._open()
        old = self._number - SEGMENTS + 1
        if old > 0:
            os.unlink(self._path(old))

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path(self._number), flags, 0o600)

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"output.{number}")


class Shim:
    """One job from the start of its command to the end of everything that it started."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        with open(os.path.join(folder, SPEC), "rb") as file:
            # ``Any``: the shim starts in milliseconds because it imports nothing that could check a shape.
            self._spec: dict[str, Any] = marshal.load(file)  # noqa: S302 - our own file
        self._output = Output(folder, self._spec["output_bytes_max"])
        self._is_terminated = False
        self._pipe = -1
        self._child = 0
        self._first: tuple[int, int] | None = None  # the first process in the sandbox, and a handle to it

    def start(self, answer: int) -> None:
        """Start the command. Raises OSError, after which nothing of it runs.

        It begins when it reads a line. If this process is killed before, it reads the end of the pipe, and
        ends: bubblewrap notices the death of its parent only when the sandbox is built. If this process is
        killed after, a server finds the command by the file that was written before the line.

        The tool call gets its answer before the line: without a sandbox, a command can halt this process.
        """
        spec = self._spec
        for fd in spec["own"]:
            os.set_inheritable(fd, False)
        self._pipe, output = os.pipe()
        go, go_end = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            _become(spec, go, output)
        for fd in (*spec["passed"], go, output):
            os.close(fd)
        try:
            if spec["info"] is not None:
                self._first = _first_process(spec["info"], self._child)
                self._set_limits()
                _say_go(spec["hold"])
            self._write_processes()
            os.write(answer, b"started\n")
            os.close(answer)
            _say_go(go_end)
        except OSError:
            self._kill()
            os.waitpid(self._child, 0)
            raise
        finally:
            for fd in (*((spec["info"], spec["hold"]) if spec["info"] is not None else ()), go_end):
                os.close(fd)

    def run(self) -> dict[str, object]:
        """Follow the command to its end; return how it ended."""
        import signal

        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        watch = self._watch()
        is_stopped, breach = self._follow(watch)
        self._kill()
        code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        self._drain()
        kernel_breach, notes = watch.finish()
        self._output.sync()
        if self._output.error:
            notes.append(
                f"from byte {self._output.total} on its output could not be kept: {self._output.error}"
            )
        return {
            "state": "stopped" if is_stopped else "ended",
            "exit_code": code,
            "detail": breach or kernel_breach,
            "notes": notes,
        }

    def _follow(self, watch: JobWatch) -> tuple[bool, str]:
        """Store its output until it ends, is to be stopped, or exceeds a limit. Returns whether it is to be
        stopped, and the limit."""
        handle = os.pidfd_open(self._child)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        look_at = synced_at = time.monotonic()
        while True:
            ready = {fd for fd, _ in poll.poll(max(0.0, look_at - time.monotonic()) * 1000)}
            if self._pipe in ready and not self._read():
                poll.unregister(self._pipe)
            if handle in ready:
                return False, ""
            now = time.monotonic()
            if now >= look_at:
                if self._is_stopped():
                    return True, ""
                if breach := watch.breach():
                    return False, breach
                look_at = now + watch.pause_s()
            if now - synced_at > _SYNC_EVERY_S:
                self._output.sync()
                synced_at = now

    def finish(self, end: dict[str, object]) -> None:
        """Write the end. On a full disk it is kept here until there is room: without it the job would be
        lost. If the folder is gone, so is its reader."""
        written = self.add_times(end)
        while True:
            try:
                return write_end(self._folder, written)
            except FileNotFoundError:
                raise
            except OSError:
                time.sleep(_END_AGAIN_S)

    def add_times(self, end: dict[str, object]) -> dict[str, object]:
        now_ms = time.time_ns() // 1_000_000
        return {**end, "ended_at": now_ms, "output_bytes": self._output.total}

    def _watch(self) -> JobWatch:
        """Imported only now: the command runs, and the tool call has its answer."""
        sys.path += self._spec["import_paths"]
        from everturn.jobs.watch import JobWatch

        scope = _own_limited_group() if self._spec["scope_memory"] and self._first else ""
        return JobWatch(self._folder, self._spec, self._first_pid() if self._first else 0, scope)

    def _set_limits(self) -> None:
        """Set the limits on the first process of the sandbox, before the command starts."""
        if self._first is None:
            return  # bubblewrap could not build the sandbox; its output says why
        pid = self._first[0]
        if self._spec["scope_memory"]:
            _own_limited_group()
            _prefer_to_kill(pid)
        try:
            for path, _, _ in self._spec["groups"]:
                with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as file:
                    file.write(str(pid))
            most = self._spec["processes"]
            if most:
                hard = resource.prlimit(pid, resource.RLIMIT_NPROC)[1]
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.prlimit(pid, resource.RLIMIT_NPROC, (most, most))
        except ProcessLookupError:
            return  # the same

    def _write_processes(self) -> None:
        """By this file a server ends the command of a killed shim, and wakes a shim that was halted."""
        lines = [f"{pid} {started_at(pid)}\n" for pid in (os.getpid(), self._first_pid())]
        lines += [KEPT] if self._spec["is_kept"] else []
        file = os.open(os.path.join(self._folder, PROCESSES), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, "".join(lines).encode())
        finally:
            os.close(file)

    def _first_pid(self) -> int:
        return self._first[0] if self._first and not self._spec["is_kept"] else self._child

    def _terminate(self, number: int, frame: object) -> None:
        self._is_terminated = True

    def _is_stopped(self) -> bool:
        """True also if the folder is gone: nothing could find this job, or stop it."""
        if self._is_terminated or os.path.exists(os.path.join(self._folder, STOP)):
            return True
        return not os.path.exists(os.path.join(self._folder, LOCK))

    def _read(self) -> bool:
        data = os.read(self._pipe, _PIECE_BYTES)
        self._output.add(data)
        return bool(data)

    def _drain(self) -> None:
        """Read what is left. A process that left the sandbox's group can hold the pipe open without end."""
        until = time.monotonic() + _LINGER_S
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._pipe], [], [], left)[0] or not self._read():
                return

    def _kill(self) -> None:
        """Kill the command with everything that it started.

        In a sandbox the kernel kills all others with the first process, and reports its end after theirs. A
        keeper does the same when it is asked to end.
        """
        import signal

        if self._spec["is_kept"]:
            os.kill(self._child, signal.SIGTERM)  # it was not waited for, so its number is still its own
            os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOWAIT)
            return
        if self._first is not None:
            try:
                signal.pidfd_send_signal(self._first[1], signal.SIGKILL)
                select.select([self._first[1]], [], [])
            except ProcessLookupError:
                pass  # it has ended already, and all others with it
        try:
            os.killpg(self._child, signal.SIGKILL)
        except ProcessLookupError:
            return  # the same


def _become(spec: dict[str, Any], go: int, output: int) -> None:
    """In the child: become the command, which waits for a line from ``go``. Never returns."""
    try:
        os.setsid()
        os.dup2(go, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if spec["folder"] is not None:
            os.chdir(str(spec["folder"]))
        words = spec["words"]
        os.execve(words[0], words, spec["env"])  # noqa: S606 - becoming the command is the purpose
    except OSError as error:
        os.write(2, f"The command could not be started: {error}\n".encode())
    finally:
        os._exit(127)


def _first_process(info: int, child: int) -> tuple[int, int] | None:
    """The sandbox's first process and a handle to it; None if bubblewrap could not even start it."""
    written = b""
    handle = os.pidfd_open(child)
    try:
        # Read to the end: bubblewrap writes in pieces, and dies if the pipe closes too early. The pipe does
        # not close when it dies, because the server holds it too.
        while not written.rstrip().endswith(b"}") and info in select.select([info, handle], [], [])[0]:
            piece = os.read(info, 4096)
            if not piece:
                break
            written += piece
    finally:
        os.close(handle)
    digits = written.partition(b'"child-pid":')[2].strip().partition(b"\n")[0].rstrip(b" ,}")
    if not digits.isdigit():
        return None
    try:
        return int(digits), os.pidfd_open(int(digits))
    except ProcessLookupError:
        return None  # it has ended already


def _own_limited_group() -> str:
    """The control group of the scope that systemd made for this process. Raises OSError if it does not limit
    memory: a command never runs without its limits."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        path = next((line[3:].strip() for line in file if line.startswith("0::")), "")
    group = "/sys/fs/cgroup" + path
    with open(os.path.join(group, "memory.max"), encoding="ascii") as limit:
        if limit.read().strip() == "max":
            raise OSError("systemd did not limit the memory of its scope")
    return group


def _prefer_to_kill(pid: int) -> None:
    """A scope holds the shim too: if memory runs out in it, the kernel kills the command first."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")
    except (FileNotFoundError, ProcessLookupError):
        return  # bubblewrap could not build the sandbox; it says why


def _say_go(pipe: int) -> None:
    try:
        os.write(pipe, b"\n")
    except BrokenPipeError:
        return  # it has ended already; its output says why


def started_at(pid: int) -> int:
    """When a process was started, in ticks since the machine was; 0 if there is none with this id."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field, a name in brackets, can hold anything.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def write_end(folder: str, end: dict[str, object]) -> None:
    """Write how the job ended, so that it is there whole or not at all, also after a power cut."""
    import json

    path = os.path.join(folder, END)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(end, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def main() -> None:
    folder = sys.argv[1]
    if os.fork():
        os._exit(0)  # so that the job has no parent of ours: no server has to wait for it
    answer = os.dup(1)
    os.set_inheritable(answer, False)
    log = os.open(os.path.join(folder, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd, target in ((nothing, 0), (nothing, 1), (log, 2)):
        os.dup2(fd, target)
    shim = Shim(folder)
    try:
        shim.start(answer)
    except OSError as error:
        detail = f"It could not be started: {error}"
        try:
            write_end(
                folder, shim.add_times({"state": "lost", "exit_code": None, "detail": detail, "notes": []})
            )
        finally:
            os.write(answer, b"failed\n")  # a call waits for this
        return
    shim.finish(shim.run())


if __name__ == "__main__":
    main()
