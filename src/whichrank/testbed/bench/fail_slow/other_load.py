"""How many cores do programs outside of this one's descendants take?

A healthy run beside a compiler is not healthy: its iterations really take longer. So a recording says how much others
took meanwhile, measured without a view on any method.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

SAMPLE_S: Final = 1.0
SPAN_S: Final = 5.0
"""Over which the load of others is a mean: about twenty iterations."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_NOT_OTHERS: Final = (3, 4, 5, 6)
"""Fields of the first line of /proc/stat that are no work of a process: idle, iowait, and interrupts of both kinds,
which are mostly of the run's own packets."""
_PARENT, _USER, _CHILDREN_SYSTEM = 1, 11, 14
"""Fields of /proc/PID/stat behind the name: parent; user, system, and both of children that were waited for."""


class OtherLoad:
    """Measures from when it is entered until it is left."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="other-load", daemon=True)

    def __enter__(self) -> OtherLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cores(self, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Cores that others took in the `SPAN_S` around each of these moments (CLOCK_MONOTONIC, s), (n,)."""
        when_s, used_s = np.array(self._samples).T
        begin_s, end_s = np.clip(at_s - SPAN_S / 2, when_s[0], None), np.clip(at_s + SPAN_S / 2, None, when_s[-1])
        took_s = np.interp(end_s, when_s, used_s) - np.interp(begin_s, when_s, used_s)
        return np.asarray(took_s / np.maximum(end_s - begin_s, SAMPLE_S))

    def _watch(self) -> None:
        while True:
            self._samples.append((time.monotonic(), others_s()))
            if self._ended.wait(SAMPLE_S):
                return


def others_s() -> float:
    """CPU seconds since boot of all but this process and its descendants."""
    fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    busy = sum(ticks for at, ticks in enumerate(fields) if at not in _NOT_OTHERS)
    return (busy - _ticks_of_descendants(os.getpid())) / _TICKS


def _ticks_of_descendants(root: int) -> int:
    """CPU of a process and of all below it, those that have ended too."""
    parents, used = dict[int, int](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pid = int(folder.name)
        parents[pid], used[pid] = int(fields[_PARENT]), sum(map(int, fields[_USER : _CHILDREN_SYSTEM + 1]))
    return sum(ticks for pid, ticks in used.items() if root in _line_of(pid, parents))


def _line_of(pid: int, parents: dict[int, int]) -> list[int]:
    """A process, its parent, and so on."""
    line = [pid]
    while (parent := parents.get(line[-1], 0)) and parent not in line:
        line.append(parent)
    return line
