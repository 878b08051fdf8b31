"""Runs inside the sandbox: a Python that lives through several calls, one request after the other.

A request is its length in eight bytes, then the code. Answers are frames: a letter, the length in four
bytes, the content. O: output. F: a figure as PNG. T: a table as CSV. D: done; its content is 1 if all
went well. The code can forge frames; they are about its own call only. What it prints right before it
kills itself may be lost.
"""

from __future__ import annotations

import ast
import io
import linecache
import os
import struct
import sys
import threading
import traceback
from typing import Any

FIGURES_MAX = 8
TABLE_BYTES_MAX = 4_000_000
_ROWS_SHOWN = 20


class Frames:
    """The way out: what the code and its children print, and what was made of it, in order."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        read, self._spare = os.pipe()
        self.renew()
        self._lock = threading.Lock()
        self._mark = b""
        self._is_flushed = threading.Event()
        threading.Thread(target=self._pump, args=(read,), daemon=True).start()

    def renew(self) -> None:
        """Open the outputs again: an earlier call may have closed or moved them."""
        for fd in (1, 2):
            os.dup2(self._spare, fd)

    def send(self, kind: bytes, content: bytes) -> None:
        with self._lock:
            data = kind + struct.pack(">I", len(content)) + content
            while data:
                data = data[os.write(self._out, data) :]

    def flush(self) -> None:
        """Return when everything that was printed has been sent."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue  # the code closed it
        self._is_flushed.clear()
        self._mark = os.urandom(16)
        os.write(self._spare, self._mark)
        self._is_flushed.wait()

    def _pump(self, read: int) -> None:
        held = b""
        while True:
            held += os.read(read, 65536)
            mark = self._mark
            at = held.find(mark) if mark else -1
            if at >= 0:
                self._mark = b""
                if held[:at]:
                    self.send(b"O", held[:at])
                held = held[at + len(mark) :]
                self._is_flushed.set()
            # The mark may have come in part: keep what could be its beginning.
            keep = len(mark) - 1 if mark and at < 0 else 0
            ready = held[: len(held) - keep] if keep else held
            held = held[len(ready) :]
            if ready:
                self.send(b"O", ready)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


# ``Any``: what the code holds under its names, and what pandas and matplotlib give.
def run(source: str, space: dict[str, Any], frames: Frames) -> bool:
    """Run the code and show the value of its last expression, as a console would; True if all went well."""
    linecache.cache["<code>"] = (len(source), None, source.splitlines(True), "<code>")
    try:
        tree = ast.parse(source, "<code>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec"), space)  # noqa: S102 - that is what it is for
        if last is not None and isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space)  # noqa: S307
            if value is not None:
                _show(value, frames)
    except SystemExit as error:
        return error.code in (None, 0)
    except BaseException as error:
        at = error.__traceback__
        while at is not None and at.tb_frame.f_code.co_filename != "<code>":
            at = at.tb_next
        traceback.print_exception(type(error), error, at)
        return False
    return True


def _show(value: Any, frames: Frames) -> None:
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, (pandas.DataFrame, pandas.Series)):
        _say(repr(value))
        return
    _say(value.to_string(max_rows=_ROWS_SHOWN))
    table = value.to_csv().encode("utf-8", "replace")
    if len(table) <= TABLE_BYTES_MAX:
        frames.send(b"T", table)
    else:
        _say(f"[the table is too large to be kept: {len(table):,} bytes as CSV]")


def _send_figures(frames: Frames) -> None:
    """Send the figures that are open in matplotlib, then close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    try:
        numbers = pyplot.get_fignums()
        for number in numbers[:FIGURES_MAX]:
            drawn = io.BytesIO()
            pyplot.figure(number).savefig(drawn, format="png", dpi=120, bbox_inches="tight")
            frames.send(b"F", drawn.getvalue())
        if len(numbers) > FIGURES_MAX:
            _say(f"[only the first {FIGURES_MAX} of {len(numbers)} figures are shown]")
        pyplot.close("all")
    except Exception:  # what the code drew may be impossible to draw
        traceback.print_exc()


def main() -> None:
    requests = os.fdopen(os.dup(0), "rb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    frames = Frames()
    sys.argv = ["<code>"]
    sys.path[0] = ""
    space: dict[str, Any] = {"__name__": "__main__"}
    while length := requests.read(8):
        source = requests.read(struct.unpack(">Q", length)[0]).decode("utf-8", "replace")
        frames.renew()
        is_well = run(source, space, frames)
        _send_figures(frames)
        frames.flush()
        frames.send(b"D", b"1" if is_well else b"0")


if __name__ == "__main__":
    main()
