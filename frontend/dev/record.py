"""Record a kill -9 in the middle of an answer: record.py OUT.gif [PORT].

Runs a real server with the local pocket model in a folder of its own, types a message in Chromium, kills the server
while the answer streams, starts it again, and waits for the end. The strip below the page shows the commands that
this script runs, as it runs them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from io import BytesIO
from pathlib import Path

from look import ARGS
from PIL import Image
from playwright.sync_api import Page, sync_playwright

MESSAGE = "Write a short story about a lighthouse keeper and a storm."
WIDTH, PAGE_HEIGHT, STRIP_HEIGHT = 960, 600, 84
FRAME_S = 0.2
STRIP = """<body style="margin:0;background:#16191d;color:#d7dde3;font:15px/24px monospace;padding:8px 16px;
white-space:pre;height:68px;overflow:hidden"></body>"""


class Server:
    def __init__(self, home: Path, port: int) -> None:
        self._environment = {**os.environ, "EVERTURN_HOME": str(home)}
        self._command = [str(Path(sys.executable).with_name("everturn")), "serve", "--port", str(port)]
        self.address = f"http://127.0.0.1:{port}/"

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._environment, stderr=subprocess.DEVNULL)

    def wait(self) -> None:
        while True:
            try:
                urllib.request.urlopen(self.address + "health/ready").read()
                return
            except OSError:
                time.sleep(0.1)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()


class Recording:
    """Frames of the page above the strip, each with the time that it was on the screen."""

    def __init__(self, page: Page, strip: Page) -> None:
        self._page, self._strip = page, strip
        self._lines: list[str] = []
        self._frames: list[Image.Image] = []
        self._times: list[float] = []

    def say(self, line: str) -> None:
        self._lines = [*self._lines, line][-3:]
        self._strip.evaluate("text => { document.body.textContent = text }", "\n".join(self._lines))

    def frame(self) -> None:
        both = Image.new("RGB", (WIDTH, PAGE_HEIGHT + STRIP_HEIGHT))
        both.paste(Image.open(BytesIO(self._page.screenshot())), (0, 0))
        both.paste(Image.open(BytesIO(self._strip.screenshot())), (0, PAGE_HEIGHT))
        self._frames.append(both)
        self._times.append(time.monotonic())

    def watch(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            started = time.monotonic()
            self.frame()
            time.sleep(max(0.0, FRAME_S - (time.monotonic() - started)))

    def save(self, out: Path, last_s: float) -> None:
        shown = [b - a for a, b in zip(self._times, self._times[1:], strict=False)] + [last_s]
        # One palette for all frames, from the middle and the end: a palette for each would flicker.
        ends = Image.new("RGB", (WIDTH, 2 * (PAGE_HEIGHT + STRIP_HEIGHT)))
        ends.paste(self._frames[len(self._frames) // 3], (0, 0))
        ends.paste(self._frames[-1], (0, PAGE_HEIGHT + STRIP_HEIGHT))
        palette = ends.quantize(128, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self._frames]
        frames[0].save(
            out,
            save_all=True,
            append_images=frames[1:],
            duration=[round(seconds * 1000) for seconds in shown],
            loop=0,
            optimize=True,
        )
        print(f"{out}: {len(frames)} frames, {sum(shown):.1f} s, {out.stat().st_size / 1e6:.1f} MB")


def act(server: Server, page: Page, recording: Recording) -> None:
    recording.say("$ everturn serve")
    page.goto(server.address)
    page.get_by_role("textbox", name="Message").fill(MESSAGE)
    recording.watch(1.5)
    page.keyboard.press("Enter")
    recording.watch(5)
    recording.say(f"$ kill -9 {server.pid}")
    server.kill()
    recording.watch(3)
    recording.say("$ everturn serve")
    server.start()
    recording.watch(8)


def main() -> None:
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = Server(Path(home), int(sys.argv[2]) if len(sys.argv) > 2 else 18431)
        server.start()
        server.wait()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": PAGE_HEIGHT})
        strip = browser.new_page(viewport={"width": WIDTH, "height": STRIP_HEIGHT})
        strip.set_content(STRIP)
        recording = Recording(page, strip)
        try:
            act(server, page, recording)
        finally:
            server.kill()
        recording.save(out, last_s=2)
        browser.close()


if __name__ == "__main__":
    main()
