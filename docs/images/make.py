"""Makes the pictures of the pages: `python docs/images/make.py`. All but one are of real runs.

    verdict.svg   what `scripts/demo` prints: the verdict, and then the truth
    watch.svg     `whichrank watch` while a rank is stopped
    slow.svg      the same while a rank computes slowly: where each rank's time goes
    cost.png      what a report says of a simulated pipeline in which a rank is slow; needs a browser

Rings of other jobs on this machine are not shown: the demo gets a folder of its own.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

from rich.text import Text
from svg import recording, svg_of

from whichrank.surface.watch.frame import RankNow
from whichrank.testbed.bench.dumps.pages import browser

HERE = Path(__file__).parent
FAULT, SEED, RANKS = "stop", "3", "8"
SLOW = ("--fault", "slow-compute", "--seed", "8", "--layout", "tp2-pp2-dp2")
SIMULATED = (
    "--layout", "pp4-dp2", "--schedule", "interleaved", "--microbatches", "8", "--layers", "2", "--fault", "slow",
    "--factor", "3", "--seed", "5",
)  # fmt: skip
COST_SIZE = "1120,600"
VERDICT_WIDTH, WATCH_SIZE, SLOW_SIZE = 100, (100, 26), (100, 28)
LOOK_EVERY_S, PATIENCE_S = 0.2, 120.0


def demo(shm: str, *options: str) -> tuple[subprocess.Popen[bytes], int]:
    """A demo in a terminal of its own, and where to read what it prints."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (WATCH_SIZE[1], VERDICT_WIDTH))
    fault = options or ("--fault", FAULT, "--seed", SEED)
    command = [sys.executable, "-m", "whichrank", "demo", "--ranks", RANKS, *fault]
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
    """The picture of the live view, at the first snapshot that has an alert with the blamed rank on top."""
    return view(lambda rows: (rows[-1].blocked_s or 0) > 2.5, WATCH_SIZE, "watch")


def slow() -> str:
    """The same of a slow rank, at the first look at which it is known where the time of all ranks goes."""
    return view(lambda rows: all(row.own_s is not None for row in rows), SLOW_SIZE, "slow", *SLOW)


def view(is_it: Callable[[list[RankNow]], bool], size: tuple[int, int], name: str, *options: str) -> str:
    """The picture of the live view of a demo, once a blamed rank is on top and `is_it` says so of the rows."""
    from whichrank.surface.watch.node import NodeReader
    from whichrank.surface.watch.view import screen

    with tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        os.environ["WHICHRANK_SHM"] = shm
        process, fd = demo(shm, *options)
        until_s = time.monotonic() + PATIENCE_S
        with NodeReader() as node:
            while time.monotonic() < until_s:
                time.sleep(LOOK_EVERY_S)
                frame = node.read()
                rows = [row for job in frame.jobs for row in job.ranks]
                if rows and rows[0].mark == "blamed" and is_it(rows):
                    break
            else:
                raise SystemExit("no alert came")
        printed(fd)
        process.wait()
    console = recording(size[0])
    console.print(screen(frame, *size))
    return svg_of(console, "whichrank watch", name)


def cost(target: Path) -> None:
    """The picture of what something slow costs: a part of the report of a simulated job."""
    program = browser()
    if program is None:
        raise SystemExit("no browser was found: cost.png stays as it is")
    whichrank = [sys.executable, "-m", "whichrank"]
    with tempfile.TemporaryDirectory() as folder:
        run, page = f"{folder}/run", Path(folder, "page.html")
        subprocess.run([*whichrank, "sim", *SIMULATED, "--output", run], check=False, stdout=subprocess.DEVNULL)
        subprocess.run([*whichrank, "report", run, "--output", str(page)], check=False)
        whole = page.read_text(encoding="utf-8")
        part = whole[whole.index("<section><h3>What it costs") : whole.index("<section><h3>What fixing")]
        page.write_text(whole[: whole.index("<body>")] + f"<body><main>{part}</main></body></html>", encoding="utf-8")
        options = ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={COST_SIZE}")
        subprocess.run([program, *options, f"--screenshot={target}", str(page)], check=True, capture_output=True)


if __name__ == "__main__":
    for name, make in (("verdict", verdict), ("watch", watch), ("slow", slow)):
        (HERE / f"{name}.svg").write_text(make(), encoding="utf-8")
        sys.stdout.write(f"{HERE / name}.svg\n")
    cost(HERE / "cost.png")
    sys.stdout.write(f"{HERE / 'cost.png'}\n")
