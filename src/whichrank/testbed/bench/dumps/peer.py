"""Runs a reader of dumps as a user does, and finds in the words of torch's whom it names.

`torchfrtrace` prints a report for each operation that does not match: members that did not join it, and ranks that it
calls culprits. It names nobody else.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIMIT_S: Final = 600.0
POLL_S: Final = 0.02
_MISSING: Final = re.compile(r"missing ranks: \{([\d, ]*)\}")
_CULPRIT: Final = re.compile(r"Culprit rank (\d+)")


@dataclass(frozen=True)
class Run:
    """A process that has ended.

    Attributes:
        code: Its exit code, negative for a signal.
        words: What it wrote to stdout, and to stderr behind it.
        took_s: Wall time.
        most_bytes: Resident memory at the most, with all processes that it started; what they share counts for each.
        last_words: The last line of stderr, if it failed.
    """

    code: int
    words: str
    took_s: float
    most_bytes: int
    last_words: str = ""


def run_limited(command: list[str], limit_s: float = LIMIT_S) -> Run:
    """Run a command to its end, or for so many seconds."""
    with tempfile.TemporaryDirectory(prefix="whichrank-reader-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        began_s = time.monotonic()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
            status, most_bytes = _wait(process, began_s + limit_s)
        took_s = time.monotonic() - began_s
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        words, errors = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
    last = errors.strip().splitlines()[-1][:200] if errors.strip() and code else ""
    return Run(code, words + ("" if command[2:3] == ["whichrank"] else errors), took_s, most_bytes, last)


def _wait(process: subprocess.Popen[bytes], until_s: float) -> tuple[int, int]:
    """How it ended, and the most memory that it and all below it had at once, as far as looks found it."""
    most_bytes = 0
    while True:
        most_bytes = max(most_bytes, _resident_bytes(process.pid))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not pid and time.monotonic() > until_s:
            process.kill()
            pid, status, usage = os.wait4(process.pid, 0)
        if pid:
            return status, max(most_bytes, usage.ru_maxrss * 1024)
        time.sleep(POLL_S)


def _resident_bytes(pid: int) -> int:
    """Of a process and all below it."""
    try:
        own = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except (OSError, IndexError):
        return 0
    return own + sum(_resident_bytes(int(child)) for child in children)


def named_by_torchfrtrace(words: str) -> set[int]:
    """Ranks that its reports name."""
    missing = {int(rank) for ranks in _MISSING.findall(words) for rank in ranks.split(",") if rank.strip()}
    return missing | {int(rank) for rank in _CULPRIT.findall(words)}
