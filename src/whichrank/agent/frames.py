"""The frame sampler of the native library, as the agent uses it: which rings it watches, and what it has counted.

It is a thread of its own, since it polls every millisecond: for 40 ms of every second, or of every five while all is
well, and without a pause while something is suspected (CCL-D section 4.1.2). What it costs is waking up, so the bursts
are short. A ring in which no socket sensor counts has nothing to sample, so the thread runs only while some ring is
worth it. Where the library is missing, or its one sampler is taken by another agent of this process, nothing is
reported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from whichrank.agent.rank import RankWatch
from whichrank.errors import NativeLibraryError
from whichrank.model.codes import SensorState
from whichrank.model.rows import FRAME, FRAME_CHANNELS
from whichrank.model.sensors import SOCKET
from whichrank.model.telemetry import RATE_ROW
from whichrank.native import load_core
from whichrank.ring.reader import Rows

PERIOD_US: Final = 1000
BURST_MS: Final = 40
EVERY_MS: Final = 1000
SELDOM_MS: Final = 5000

_CHANNEL_RATES: Final = np.dtype(
    [
        *((name, "u8") for name in ("send_changes", "recv_changes", "send_messages", "recv_messages")),
        *((name, "f8") for name in ("send_rate", "recv_rate")),
    ]
)
_WINDOW: Final = np.dtype(
    [
        *((name, "u8") for name in ("start_ns", "end_ns", "samples", "active_send", "active_recv", "operations")),
        ("channel", _CHANNEL_RATES, (FRAME_CHANNELS,)),
    ]
)
RATES: Final = np.dtype([("windows", "u8"), ("late", "u8"), ("failed", "u8"), ("last", _WINDOW), ("total", _WINDOW)])
"""`wr_rates` of `native/include/whichrank/sampler.h`, byte for byte."""
_CHANGES: Final = ("send_changes", "recv_changes", "send_messages", "recv_messages")


class FrameSampler:
    """Watches the frames of ranks whose socket sensor counts. One at a time in a process; others see nothing."""

    def __init__(self) -> None:
        self._core = _core()
        self._ids: dict[RankWatch, int] = {}
        self._refused: set[RankWatch] = set()
        self._next_id = 0
        self._runs = False
        self._always = self._is_seldom = False

    def poll(self, watches: Iterable[RankWatch], *, closely: bool) -> None:
        """Take up the rings that count, let go of the others; `closely`: sample without a pause."""
        if self._core is None:
            return
        wanted = {watch for watch in watches if _counts(watch)}
        for watch in self._ids.keys() - wanted:
            self._core.wr_sampler_remove(self._ids.pop(watch))
        self._refused &= wanted
        for watch in wanted - self._ids.keys() - self._refused:
            self._add(watch)
        if self._runs and not self._ids:
            self._stop()
        if closely:
            self.sample_seldom(seldom=False)  # so long is a window
        if self._runs and closely != self._always:
            self._core.wr_sampler_always(int(closely))
            self._always = closely

    def sample_seldom(self, *, seldom: bool) -> None:
        """While all is well, a burst every five seconds is enough."""
        if self._core is not None and self._runs and seldom != self._is_seldom:
            self._core.wr_sampler_every(SELDOM_MS if seldom else EVERY_MS)
            self._is_seldom = seldom

    def rates(self, watches: Sequence[RankWatch]) -> Rows:
        """Rows of RATE_ROW: the latest window of each rank that is sampled."""
        sampled = [watch for watch in watches if watch in self._ids]
        if self._core is None or not sampled:
            return np.empty(0, RATE_ROW)
        read = np.zeros(len(sampled), RATES)
        for place, watch in enumerate(sampled):
            self._core.wr_sampler_read(self._ids[watch], read.ctypes.data + place * RATES.itemsize)
        frames = b"".join(
            [watch.snapshot.frame.data for watch in sampled]
        )  # `np.concatenate` compares all fields first
        return rate_rows([watch.rank for watch in sampled], read, np.frombuffer(frames, FRAME))

    def close(self) -> None:
        """End the thread."""
        self._ids.clear()
        if self._runs:
            self._stop()

    def _add(self, watch: RankWatch) -> None:
        assert self._core is not None
        if not self._runs:
            self._runs = not self._core.wr_sampler_start(PERIOD_US, BURST_MS, EVERY_MS)
        if self._runs and not self._core.wr_sampler_add(watch.reader.fileno(), self._next_id):
            self._ids[watch] = self._next_id
            self._next_id += 1
        else:
            self._refused.add(watch)

    def _stop(self) -> None:
        assert self._core is not None
        self._core.wr_sampler_stop()
        self._runs = self._always = self._is_seldom = False


def rate_rows(ranks: Sequence[int], rates: Rows, frames: Rows) -> Rows:
    """Rows of RATE_ROW of the ranks that have a window.

    Args:
        ranks: Of each row of the other two.
        rates: Rows of RATES.
        frames: Rows of FRAME, of the latest snapshot.
    """
    rows = np.zeros(len(rates), RATE_ROW)
    rows["rank"] = ranks
    last = rates["last"]
    for name in ("start_ns", "end_ns", "samples", "active_send", "active_recv"):
        rows[name] = last[name]
    for name in _CHANGES:
        rows[name] = last["channel"][name].sum(axis=1)
    for path in ("send", "recv"):
        changes = rows[f"{path}_changes"]
        rows[f"{path}_rate"] = np.where(changes > 0, 1.0 / np.maximum(changes, 1), 0.0)
    latest = np.minimum(frames["kernel_index"], frames["block"].shape[1] - 1).astype(np.intp)
    channel = frames["block"]["channel"][np.arange(len(frames)), latest]
    rows["op_sent"] = channel["send_count"].sum(axis=1)
    rows["op_received"] = channel["recv_count"].sum(axis=1)
    return rows[rates["windows"] > 0]


def _counts(watch: RankWatch) -> bool:
    """Whether its frame moves: its process lives and its socket sensor is on."""
    if watch.ended_ns or watch.is_cut or watch.rank < 0:
        return False
    return int(watch.snapshot.header["sensor"]["state"][0, SOCKET.place]) == SensorState.ON


def _core() -> ctypes.CDLL | None:
    try:
        core = load_core()
        core.wr_sampler_add.argtypes = (ctypes.c_int, ctypes.c_uint64)
        core.wr_sampler_remove.argtypes = (ctypes.c_uint64,)
        core.wr_sampler_read.argtypes = (ctypes.c_uint64, ctypes.c_void_p)
        core.wr_sampler_start.argtypes = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
        core.wr_sampler_always.argtypes = (ctypes.c_int,)
        core.wr_sampler_every.argtypes = (ctypes.c_uint32,)
        core.wr_sampler_always.restype = core.wr_sampler_every.restype = core.wr_sampler_stop.restype = None
    except (NativeLibraryError, AttributeError):  # not installed, or an older one
        return None
    return core
