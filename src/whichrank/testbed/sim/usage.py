"""What the ranks of a simulated job use: CPU time, memory and storage as `/proc` counts them, and messages.

A rank that has begun operations since the last report has worked since then; one that hangs has not, unless it is seen
to compute.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.telemetry import RATE_ROW, ProcessState
from whichrank.testbed.sim.clocks import BEGIN_S, NS

Ints = NDArray[np.int64]
Rows = np.ndarray[Any, Any]
CPU_SHARE: Final = 0.6
"""Of a core, while a rank trains: the rest of the time it waits."""
DELAY_SHARE, COLLECTED_SHARE, STALL_SHARE = 0.01, 0.002, 0.0005
"""Of the time: ready without a CPU, in Python's garbage collector, and waiting for memory or storage."""
READ_BYTES_PER_S, WRITTEN_BYTES_PER_S, FAULTS = 1_000_000, 1_000, 8
TICKS_PER_S: Final = 100
"""Of the kernel's clock, in which it says when a process began."""
WINDOW_S, SAMPLES = 0.5, 500
"""Of the frame sampler."""
ACTIVE, MESSAGES = 100, 40
"""Samples of a window in which something was sent, and how many messages."""


class Usage:
    """Of all ranks.

    Args:
        ranks: How many.
        cores: Of a node.

    Attributes:
        in_op: Messages that each rank has sent and received in its latest operation, (R, 2).
    """

    def __init__(self, ranks: int, cores: int) -> None:
        self._cores, self._read_ns = cores, int(BEGIN_S * NS)
        self._begun, self._cpu_ns = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        self._has_worked = np.zeros(ranks, np.bool_)
        self.in_op = np.ones((ranks, 2), np.int64)

    def fill(self, rows: Rows, at_ns: int) -> None:
        """Set the fields of RANK_ROW that say what is used.

        Args:
            rows: Of all ranks; `ordinal` and `state` are known, times are on the true clock.
            at_ns: When they are read, by that clock.
        """
        self._has_worked = rows["ordinal"].astype(np.int64) > self._begun
        self._begun = rows["ordinal"].astype(np.int64)
        share = np.where(rows["state"] == ProcessState.RUNNING, 1.0, np.where(self._has_worked, CPU_SHARE, 0.0))
        self._cpu_ns += (share * (at_ns - self._read_ns)).astype(np.int64)
        self._read_ns = at_ns
        since_ns = at_ns - int(BEGIN_S * NS)
        rows["usage_ns"] = rows["read_ns"]
        rows["cpu_ns"] = rows["main_cpu_ns"] = self._cpu_ns
        rows["delay_ns"], rows["collected_ns"] = DELAY_SHARE * self._cpu_ns, COLLECTED_SHARE * self._cpu_ns
        rows["limit_cores"], rows["allowed_cores"], rows["major_faults"] = np.inf, self._cores, FAULTS
        rows["node_ns"] = int(CPU_SHARE * since_ns)
        for name in ("stolen_ns", "memory_stall_ns", "io_stall_ns"):
            rows[name] = int(STALL_SHARE * since_ns)
        rows["read_bytes"] = READ_BYTES_PER_S * since_ns // NS
        rows["written_bytes"] = WRITTEN_BYTES_PER_S * since_ns // NS
        rows["pid_start_ticks"] = int((BEGIN_S - 1) * TICKS_PER_S)

    def rates(self) -> Rows:
        """RATE_ROW of all ranks, of the latest window before the last `fill`, by the true clock."""
        rows = np.zeros(len(self._begun), RATE_ROW)
        rows["rank"], rows["samples"] = np.arange(len(rows)), SAMPLES
        rows["start_ns"], rows["end_ns"] = self._read_ns - int(WINDOW_S * NS), self._read_ns
        for path in ("send", "recv"):
            rows[f"active_{path}"], rows[f"{path}_changes"] = ACTIVE * self._has_worked, MESSAGES * self._has_worked
            rows[f"{path}_messages"] = MESSAGES * self._has_worked
            rows[f"{path}_rate"] = self._has_worked / MESSAGES
        rows["op_sent"], rows["op_received"] = self.in_op.T
        return rows
