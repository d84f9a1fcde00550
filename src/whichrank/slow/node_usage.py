"""What nodes gave to ranks over the latest window: CPU time, the wait for it, throttling, collections, stops."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.model.iterations import Floats
from whichrank.model.telemetry import RANK_ROW, ProcessState

COUNTERS: Final = (
    *("main_cpu_ns", "delay_ns", "throttled_ns", "collected_ns", "cpu_ns", "major_faults", "read_bytes"),
    *("node_ns", "stolen_ns", "memory_stall_ns", "io_stall_ns"),
)
_KEPT: Final = ("pid", "usage_ns", "limit_cores", "allowed_cores", "clock_mhz", *COUNTERS)
_SAMPLE: Final = np.dtype([(name, RANK_ROW[name]) for name in _KEPT])
SAMPLES: Final = 16
"""Kept, the oldest first to go."""
LEAST_S: Final = 1.0
"""Seconds between two samples: counters of the kernel are too coarse for less."""


@dataclass(frozen=True)
class Rates:
    """Per second of a rank's clock, of each rank in the window; NaN where it is not known.

    Attributes:
        main_cpu: The main thread ran, seconds.
        delay: It was ready and waited for a CPU, seconds.
        throttled: Its control groups were held back, seconds.
        collected: The garbage collector ran, seconds.
        cpu: All threads ran, seconds.
        major_faults: Pages read from storage.
        read_bytes: Bytes read from storage.
        node: The cores of its node worked, seconds, on average.
        stolen: They would have, and the hypervisor gave them to others, seconds.
        memory_stall: Somebody on its node waited for memory, seconds.
        io_stall: Somebody on its node waited for storage, seconds.
        clock_mhz: Of the core that its main thread runs on, the median of snapshots.
        stopped: Share of snapshots in which the process was stopped, less two standard errors.
        limit_cores: Of its control groups, NaN where they cannot be read.
        allowed_cores: On which it may run.
    """

    main_cpu: Floats
    delay: Floats
    throttled: Floats
    collected: Floats
    cpu: Floats
    major_faults: Floats
    read_bytes: Floats
    node: Floats
    stolen: Floats
    memory_stall: Floats
    io_stall: Floats
    clock_mhz: Floats
    stopped: Floats
    limit_cores: Floats
    allowed_cores: Floats

    def taken(self) -> Floats:
        """Seconds that the hypervisor took from the main thread of each rank, in proportion to what it ran."""
        share = np.divide(self.stolen, self.node, out=np.zeros_like(self.stolen), where=self.node > 0)
        return np.asarray(self.main_cpu * share)

    def without_cpu(self) -> float:
        """Seconds for which a main thread is ready and has no CPU, the median over ranks; 0 if it is not known."""
        lost = self.delay + self.taken()
        known = lost[~np.isnan(lost)]
        return float(np.median(known)) if len(known) else 0.0


class NodeUsage:
    """Samples of all ranks, some in each window."""

    def __init__(self) -> None:
        self._snapshots = np.zeros(0, np.int64)
        self._stopped = np.zeros(0, np.int64)
        self._samples: deque[tuple[np.ndarray[Any, Any], NDArray[np.int64], NDArray[np.int64]]] = deque(maxlen=SAMPLES)

    def see(self, rows: np.ndarray[Any, Any]) -> None:
        """Count how often ranks are stopped; rows of RANK_ROW, no rank twice."""
        self._grow(int(rows["rank"].max(initial=-1)) + 1)
        self._snapshots[rows["rank"]] += 1
        self._stopped[rows["rank"]] += rows["state"] == ProcessState.STOPPED

    def sample(self, rows: np.ndarray[Any, Any]) -> None:
        """Keep what is known now; rows of RANK_ROW of all ranks."""
        self._grow(len(rows))
        kept = np.zeros(len(rows), _SAMPLE)
        for name in _KEPT:
            kept[name] = rows[name]
        self._samples.append((kept, self._snapshots[: len(rows)].copy(), self._stopped[: len(rows)].copy()))

    def _grow(self, size: int) -> None:
        more = np.zeros(max(0, size - len(self._snapshots)), np.int64)
        if len(more):
            self._snapshots, self._stopped = np.append(self._snapshots, more), np.append(self._stopped, more)

    def rates(self, ranks: NDArray[np.int64], since_ns: NDArray[np.int64]) -> Rates:
        """How much of everything each rank used.

        Args:
            ranks: Which ones.
            since_ns: From when on, on the clock of each.
        """
        now, polls, stopped = self._samples[-1]
        then, polled, was_stopped = now[ranks].copy(), polls[ranks].copy(), stopped[ranks].copy()
        clocks: list[Floats] = []
        for rows, earlier_snapshots, earlier_stopped in reversed(self._samples):
            known = ranks < len(rows)
            at = np.where(known, ranks, 0)
            fits = known & (rows["usage_ns"][at] >= since_ns) & (rows["pid"][at] == now["pid"][ranks])
            then[fits] = rows[at][fits]
            polled[fits], was_stopped[fits] = earlier_snapshots[at][fits], earlier_stopped[at][fits]
            clocks.append(np.where(fits & (rows["clock_mhz"][at] > 0), rows["clock_mhz"][at], np.nan))
        latest = now[ranks]
        seconds = (latest["usage_ns"].astype(np.float64) - then["usage_ns"]) / 1e9
        seconds[seconds < LEAST_S] = np.nan

        def rate(name: str, scale: float = 1e9) -> Floats:
            return np.asarray((latest[name].astype(np.float64) - then[name]) / scale / seconds)

        polled_at = (polls[ranks] - polled).astype(np.float64)
        polled_at[polled_at < 1] = np.nan
        return Rates(
            main_cpu=rate("main_cpu_ns"),
            delay=rate("delay_ns"),
            throttled=rate("throttled_ns"),
            collected=rate("collected_ns"),
            cpu=rate("cpu_ns"),
            major_faults=rate("major_faults", 1.0),
            read_bytes=rate("read_bytes", 1.0),
            node=rate("node_ns"),
            stolen=rate("stolen_ns"),
            memory_stall=rate("memory_stall_ns"),
            io_stall=rate("io_stall_ns"),
            clock_mhz=_median(np.array(clocks)),
            stopped=_at_least((stopped[ranks] - was_stopped) / polled_at, polled_at),
            limit_cores=latest["limit_cores"].astype(np.float64),
            allowed_cores=latest["allowed_cores"].astype(np.float64),
        )


def _at_least(share: Floats, polls: Floats) -> Floats:
    """What a share is at least: looks are few, and may be in step with what they look at."""
    return np.asarray(np.maximum(share - 2 * np.sqrt(share * (1 - share) / polls), 0.0))


def _median(polls: NDArray[np.float64]) -> Floats:
    """Of each column, without what is not known; NaN where nothing is."""
    known = ~np.isnan(polls)
    medians = np.full(polls.shape[1], np.nan)
    medians[known.any(axis=0)] = np.nanmedian(polls[:, known.any(axis=0)], axis=0)
    return medians
