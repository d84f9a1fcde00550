"""How long the garbage collector keeps a process stands in its ring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from whichrank.model.rows import HEADER

PROGRAM = """
import ctypes, gc, sys, time
from whichrank.sensors import garbage_collector
from whichrank.native import load_core
from whichrank.sensors.identity import Identity

core = load_core()
core.wr_ring_create.restype = ctypes.c_void_p
assert core.wr_ring_create(sys.argv[1].encode(), ctypes.byref(Identity(0, 0, 1, 1, 0, b"host", b"job")))
gc.disable()
garbage_collector.watch()

def collected():
    began = time.monotonic_ns()
    gc.collect(int(sys.argv[2]))
    return time.monotonic_ns() - began

cells = [[] for _ in range(200_000)]
for i, cell in enumerate(cells):
    cell.append(cells[i - 1])
del cells, cell
print(collected())
"""


def reported(tmp_path: Path, generation: int) -> tuple[int, int]:
    """Nanoseconds in the collector as the process measures them, and as its ring says."""
    ring = tmp_path / f"{generation}.ring"
    command = [sys.executable, "-c", PROGRAM, str(ring), str(generation)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    header = np.frombuffer(ring.read_bytes()[: HEADER.itemsize], HEADER)
    return int(done.stdout), int(header["collected_ns"][0])


def test_time_in_the_collector_is_added_up(tmp_path: Path) -> None:
    measured_ns, reported_ns = reported(tmp_path, 2)
    assert 0.5 * measured_ns < reported_ns <= measured_ns


def test_the_youngest_generation_is_left_out(tmp_path: Path) -> None:
    assert reported(tmp_path, 0)[1] == 0
