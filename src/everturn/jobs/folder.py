"""The files of one job: what its shim wrote, and whether the shim lives."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import msgspec

from everturn.domain.job_states import JobState
from everturn.jobs.processes import wake_shim
from everturn.jobs.shim import END, FIRST_OUTPUT, LOCK, SEGMENTS, STOP
from everturn.tools.terminal.background import OutputPiece


class JobEnd(msgspec.Struct, frozen=True):
    """How a job ended, as its shim wrote it. Times are in milliseconds."""

    state: JobState
    exit_code: int | None
    detail: str
    notes: tuple[str, ...]
    ended_at: int
    output_bytes: int


_decoder = msgspec.json.Decoder(JobEnd)


class JobFolder:
    """``output_bytes_max``: how much of its output a job keeps; the shim was given the same."""

    def __init__(self, path: Path, output_bytes_max: int) -> None:
        self.path = path
        self._segment_bytes = max(1, output_bytes_max // SEGMENTS)

    def make(self) -> int:
        """Make the folder and take its lock, which the shim inherits; return the lock's descriptor."""
        self.path.mkdir(mode=0o700, parents=True)
        lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock

    @property
    def was_begun(self) -> bool:
        """False if the server was killed before the shim began its work."""
        return (self.path / FIRST_OUTPUT).exists()

    def end(self) -> JobEnd | None:
        """How the job ended; None while its shim has not written that."""
        try:
            return _decoder.decode((self.path / END).read_bytes())
        except FileNotFoundError:
            return None

    def is_held(self) -> bool:
        """True while the shim runs, or while a server is about to start it."""
        try:
            lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two processes may check at once
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            return True
        finally:
            os.close(lock)
        return False

    def ask_to_stop(self) -> None:
        """The shim checks for this file ten times a second. It is woken: a command can have halted it."""
        if self.path.exists():
            (self.path / STOP).touch(mode=0o600)
            wake_shim(self.path)

    def read(self, after: int, bytes_max: int) -> OutputPiece:
        """Up to this many bytes of output from an offset on; from a later one if that part was dropped."""
        segments = self._segments()
        if not segments:
            return OutputPiece(0, b"", 0)
        last = max(segments)
        total = last * self._segment_bytes + segments[last]
        number = min(max(after, 0), total) // self._segment_bytes
        while number not in segments and number < last:
            number += 1
        start = max(after, number * self._segment_bytes)
        pieces: list[bytes] = []
        left = bytes_max
        while left > 0 and number in segments:
            skip = max(0, start - number * self._segment_bytes) if not pieces else 0
            piece = self._piece(number, skip, left)
            pieces.append(piece)
            left -= len(piece)
            number += 1
        return OutputPiece(min(start, total), b"".join(pieces), total)

    def read_kept(self) -> bytes:
        """The output that was kept, with a note where part of it was dropped."""
        pieces: list[bytes] = []
        place = 0
        while (found := self.read(place, self._segment_bytes)).data:
            if found.start > place:
                pieces.append(f"\n[… {found.start - place:,} bytes left out …]\n".encode())
            pieces.append(found.data)
            place = found.end
        return b"".join(pieces)

    def _segments(self) -> dict[int, int]:
        """Size by number. Empty if there are none: the shim has not begun, or its output was deleted."""
        found = {}
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    name, _, number = entry.name.partition(".")
                    if name == "output" and number.isdigit():
                        found[int(number)] = entry.stat().st_size
        except FileNotFoundError:
            return {}
        return found

    def _piece(self, number: int, skip: int, bytes_max: int) -> bytes:
        try:
            with open(self.path / f"output.{number}", "rb") as file:
                file.seek(skip)
                return file.read(bytes_max)
        except FileNotFoundError:
            return b""  # the shim deleted it: newer output came
