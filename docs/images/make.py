"""Makes the pictures of the README from a real run: `python docs/images/make.py`.

    verdict.svg   what `scripts/demo` prints: the verdict, and then the truth
    watch.svg     `whichrank watch` while a rank is stopped

Rings of other jobs on this machine are not shown: the demo gets a folder of its own.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.text import Text
from svg import recording, svg_of

HERE = Path(__file__).parent
FAULT, SEED, RANKS = "stop", "3", "8"
VERDICT_WIDTH, WATCH_SIZE = 100, (100, 26)
LOOK_EVERY_S, PATIENCE_S = 0.2, 120.0


def demo(shm: str, *options: str) -> tuple[subprocess.Popen[bytes], int]:
    """A demo in a terminal of its own, and where to read what it prints."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "whichrank", "demo", "--fault", FAULT, "--seed", SEED, "--ranks", RANKS, *options]
    environ = {**os.environ, "WHICHRANK_SHM": shm, "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environ)
    os.close(its)
    return process, ours


def printed(fd: int) -> str:
    """All that comes, until the other side closes."""
    content = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        content += part
    return content.decode(errors="replace").replace("\r\n", "\n")


def verdict() -> str:
    """The picture of a verdict."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        process, fd = demo(shm)
        text = printed(fd)
        if process.wait() != 0:
            raise SystemExit(f"the demo did not agree with the truth:\n{text}")
    console = recording(VERDICT_WIDTH)
    console.print(Text.assemble(("$ ", "dim"), (f"scripts/demo --fault {FAULT} --seed {SEED}", "bold")))
    for line in re.sub(r" Log: \S+", "", text).rstrip().split("\n"):
        console.print(Text.from_ansi(line))
    return svg_of(console, "whichrank demo", "verdict")


def watch() -> str:
    """The picture of the live view, at the first look that has an alert with the blamed rank on top."""
    from whichrank.surface.watch.node import NodeReader
    from whichrank.surface.watch.view import screen

    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        os.environ["WHICHRANK_SHM"] = shm
        process, fd = demo(shm)
        until_s = time.monotonic() + PATIENCE_S
        with NodeReader() as node:
            while time.monotonic() < until_s:
                time.sleep(LOOK_EVERY_S)
                frame = node.read()
                rows = [row for job in frame.jobs for row in job.ranks]
                if rows and rows[0].mark == "blamed" and (rows[-1].blocked_s or 0) > 2.5:
                    break
            else:
                raise SystemExit("no alert came")
        printed(fd)
        process.wait()
    console = recording(WATCH_SIZE[0])
    console.print(screen(frame, *WATCH_SIZE))
    return svg_of(console, "whichrank watch", "watch")


if __name__ == "__main__":
    for name, make in (("verdict", verdict), ("watch", watch)):
        (HERE / f"{name}.svg").write_text(make(), encoding="utf-8")
        sys.stdout.write(f"{HERE / name}.svg\n")
