"""What launchers and collectors of logs put around each line, and what happens to a log before it is posted."""

from __future__ import annotations

import gzip
import html
import io
import json
import zipfile
from collections.abc import Callable
from random import Random
from typing import Final

from whichrank.testbed.bench.logs.jobs import LAUNCHER, Dress

PREFIXES: Final[dict[str, Dress]] = {
    "none": lambda rank, text, at: text,
    "srun --label": lambda rank, text, at: f"{max(rank, 0)}: {text}",
    "torchrun --tee": lambda rank, text, at: text if rank == LAUNCHER else f"[default{rank % 8}]:{text}",
    "mpirun": lambda rank, text, at: text if rank == LAUNCHER else f"[1,{rank}]<stderr>:{text}",
    "Kubernetes": lambda rank, text, at: f"{at} stderr F {text}",
    "pod": lambda rank, text, at: f"[pod/job-worker-{max(rank, 0) // 8}/pytorch] {text}",
    "Ray": lambda rank, text, at: (
        text if rank == LAUNCHER else f"(RayTrainWorker pid={6000 + rank}, ip=10.0.0.2) {text}"
    ),
    "syslog": lambda rank, text, at: f"Jun  1 {at[11:19]} node{max(rank, 0) // 8} train[{6000 + rank}]: {text}",
    "docker": lambda rank, text, at: json.dumps({"log": f"{text}\n", "stream": "stderr", "time": at}),
    "CloudWatch": lambda rank, text, at: json.dumps({"timestamp": 1780282800000, "message": text}),
    "pdsh": lambda rank, text, at: f"worker-{max(rank, 0) // 8}: {text}",
}
"""By name: a line of a rank as it reaches the log."""


def _torn(random: Random, lines: list[str]) -> list[str]:
    """Some lines begin in the middle of others, whose rest follows."""
    found: list[str] = []
    for line in lines:
        if found and line.startswith("[rank") and random.random() < 0.15 and len(found[-1]) > 40:
            at = random.randrange(20, len(found[-1]))
            rest, found[-1] = found[-1][at:], found[-1][:at] + line
            found.append(rest)
        else:
            found.append(line)
    return found


def _wrapped(width: int) -> Callable[[Random, list[str]], list[str]]:
    return lambda _, lines: [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]


_BAR: Final = " 12%|█▏  | 12/100 [00:01<00:10]"
LOSSLESS: Final[dict[str, Callable[[Random, list[str]], list[str]]]] = {
    "none": lambda _, lines: lines,
    "colours": lambda _, lines: [f"\x1b[31m{line}\x1b[0m" for line in lines],
    "HTML": lambda _, lines: [html.escape(line) for line in lines],
    "quoted": lambda _, lines: [f"> {line}" for line in lines],
    "progress bars": lambda _, lines: [_BAR * line.startswith(("[rank", "[E")) + line for line in lines],
    "carriage returns": lambda _, lines: [f"step 1\rstep 2\r{line}\r" for line in lines],
    "other lines": lambda _, lines: [part for line in lines for part in ("iteration 7 loss 0.1", line)],
    "wrapped at 80": _wrapped(80), "wrapped at 100": _wrapped(100), "wrapped at 120": _wrapped(120),
    "wrapped at 132": _wrapped(132),
}  # fmt: skip
"""Damage after which all is still there."""
LOSSY: Final[dict[str, Callable[[Random, list[str]], list[str]]]] = {
    "torn": _torn,
    "lines lost": lambda random, lines: [line for line in lines if random.random() > 0.2] or lines[:1],
    "end lost": lambda random, lines: lines[: random.randrange(len(lines) // 2, len(lines)) + 1],
    "begin lost": lambda random, lines: lines[random.randrange(len(lines) // 2 + 1) :],
    "in one line": lambda _, lines: [" ".join(lines)],
}
"""Damage after which something may be missing, or may not be attributed."""


def _zip(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logs/job.log", data)
    return file.getvalue()


ENCODINGS: Final[dict[str, Callable[[str], bytes]]] = {
    "UTF-8": str.encode,
    "UTF-8 with a mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "ends of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "gzip": lambda text: gzip.compress(text.encode(), 1),
    "zip": lambda text: _zip(text.encode()),
}
"""By name: the bytes of a text."""
