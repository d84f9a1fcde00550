"""torch's own reader of dumps, `torchfrtrace`, as a user runs it, and whom it names.

It prints a report for each operation that does not match, so whom it names is taken from its words: members that did
not join, and ranks that it calls culprits.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIMIT_S: Final = 300.0
_MISSING: Final = re.compile(r"missing ranks: \{([\d, ]*)\}")
_CULPRIT: Final = re.compile(r"Culprit rank (\d+)")


@dataclass(frozen=True)
class Said:
    """What came of it.

    Attributes:
        named: By rank, in how many of its reports.
        failed: It ended with an error.
        took_s: Wall time.
        most_bytes: Resident memory at the most.
        last_words: Of its output, if it failed.
    """

    named: dict[int, int]
    failed: bool
    took_s: float
    most_bytes: int
    last_words: str = ""


def torchfrtrace(folder: Path, prefix: str) -> Said:
    """Run it on a folder of pickles whose names are the prefix and the rank."""
    command = [
        sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "-p", prefix,
        "--allow-incomplete-ranks",
    ]  # fmt: skip
    return _run(command)


def _run(command: list[str]) -> Said:
    before_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            words, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            words, _ = process.communicate()
    took_s = time.monotonic() - before_s
    most_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    named = Counter(int(rank) for ranks in _MISSING.findall(words) for rank in ranks.split(",") if rank.strip())
    named.update(int(rank) for rank in _CULPRIT.findall(words))
    failed = process.returncode != 0
    last_words = words.strip().splitlines()[-1][:200] if failed and words.strip() else ""
    return Said(dict(named), failed, took_s, most_bytes, last_words)
