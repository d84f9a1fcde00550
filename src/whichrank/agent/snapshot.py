"""The columns of one look at a node: rows of all its ranks, one after the other, as `model.telemetry` lays them out.

Everything is done for all ranks at once, since a NumPy call costs the same for one row as for a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whichrank.agent.rank import RankWatch
from whichrank.model.kinds import Kind
from whichrank.model.rows import COMM, HEADER, INFLIGHT_ROW, PAIR, SPLITS_ROW, WAIT
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_REPORTED,
    PAIR_ROW,
    RANK_ROW,
    RECORD_REPORTED,
    SPLITS_REPORTED,
    WAIT_REPORTED,
    ProcessState,
)
from whichrank.ring.reader import Rows

_FROM_HEADER = (
    *("pid", "local_rank", "world_size", "restart_count", "pid_start_ticks", "heartbeat_ns", "closed_ns", "init_ns"),
    *("ordinal", "head", "exception_ns", "first_failure_ns", "phase_since_ns", "phase", "exception", "failure"),
    "collected_ns",
)
_USAGE = (
    *("main_cpu_ns", "delay_ns", "throttled_ns", "limit_cores", "allowed_cores", "major_faults", "read_bytes"),
    *("node_ns", "stolen_ns", "memory_stall_ns", "io_stall_ns", "clock_mhz"),
)
"""In the order of `Usage`."""
_DROPPED = ("dropped_inflight", "dropped_waits", "dropped_pairs", "dropped_comms")
_BEING_WRITTEN_NS = 1
"""In a header: somebody writes the text that belongs to this time."""
_IRREGULAR = frozenset((ProcessState.STOPPED, ProcessState.ZOMBIE, ProcessState.GONE))


class StateColumns(NamedTuple):
    """State columns of a batch."""

    ranks: bytes
    comms: bytes
    pairs: bytes
    inflight: bytes
    waits: bytes
    connections: bytes
    splits: bytes


def report(
    watches: Sequence[RankWatch],
    inferred: Sequence[Rows],
    lost_records: Sequence[int],
    connections: Rows,
    splits: Sequence[Rows],
) -> StateColumns:
    """All that the latest looks at these ranks say; all sequences run in parallel.

    Args:
        watches: The ranks.
        inferred: Waits that no sensor marked.
        lost_records: By rank.
        connections: Rows of TCP_ROW.
        splits: Rows of SPLITS_ROW that are news.
    """
    if not watches:
        return StateColumns(b"", b"", b"", b"", b"", b"", b"")
    return StateColumns(
        rank_rows(watches, lost_records).tobytes(),
        comm_rows(watches).tobytes(),
        pair_rows(watches).tobytes(),
        inflight_rows(watches).tobytes(),
        wait_rows(watches, inferred).tobytes(),
        connections.tobytes(),
        splits_rows(watches, splits).tobytes(),
    )


def rank_rows(watches: Sequence[RankWatch], lost_records: Sequence[int]) -> Rows:
    """Rows of RANK_ROW."""
    headers = _joined([watch.snapshot.header for watch in watches], HEADER)
    rows = np.zeros(len(watches), RANK_ROW)
    rows["rank"] = [watch.rank for watch in watches]
    for name in _FROM_HEADER:
        rows[name] = headers[name]
    rows["created_ns"] = headers["created_monotonic_ns"]
    for name in ("exception_ns", "first_failure_ns"):
        rows[name][rows[name] == _BEING_WRITTEN_NS] = 0
    rows["dropped_rows"] = sum(headers[name] for name in _DROPPED)
    rows["sensor"] = headers["sensor"]["state"]
    rows["lost_records"] = lost_records
    rows["read_ns"] = [watch.snapshot.read_ns for watch in watches]
    rows["state"] = [watch.process.state for watch in watches]
    rows["main_wait_channel"] = [watch.main_channel for watch in watches]
    rows["busy"] = [watch.busy for watch in watches]
    rows["exit_status"] = [watch.exit_status for watch in watches]
    rows["ended_ns"] = [watch.ended_ns for watch in watches]
    rows["cpu_ns"] = [watch.process.cpu_ns for watch in watches]
    rows["written_bytes"] = [watch.io.written_bytes for watch in watches]
    rows["usage_ns"] = [watch.usage_ns for watch in watches]
    usage = np.array([watch.usage for watch in watches])
    for at, name in enumerate(_USAGE):
        rows[name] = usage[:, at]
    rows["children_cpu_ns"] = [watch.children_cpu_ns for watch in watches]
    return rows


def comm_rows(watches: Sequence[RankWatch]) -> Rows:
    """Rows of COMM_ROW."""
    sizes = [watch.snapshot.comms.size for watch in watches]
    comms = _joined([watch.snapshot.comms for watch in watches], COMM)
    rows = np.zeros(len(comms), COMM_ROW)
    rows["rank"] = _ranks(watches, sizes)
    rows["slot"] = np.concatenate([watch.snapshot.comm_slots for watch in watches])
    for name in ("group_rank", "comm_id", "epoch", "state", "last_tid", "issued", "done", "completed", "failed"):
        rows[name] = comms[name]
    for name in ("last_issue_ns", "last_done_ns", "timeout_ms", "last_kind"):
        rows[name] = comms[name]
    return rows


def pair_rows(watches: Sequence[RankWatch]) -> Rows:
    """Rows of PAIR_ROW."""
    pairs = _joined([watch.snapshot.pairs for watch in watches], PAIR)
    rows = np.zeros(len(pairs), PAIR_ROW)
    rows["rank"] = _ranks(watches, [watch.snapshot.pairs.size for watch in watches])
    for name in ("peer", "issued", "done", "completed", "tag", "last_tid", "kind"):
        rows[name] = pairs[name]
    rows["comm_id"] = _comms(watches, [watch.snapshot.pairs for watch in watches])
    return rows


def inflight_rows(watches: Sequence[RankWatch]) -> Rows:
    """Rows of INFLIGHT_REPORTED."""
    tables = [watch.snapshot.inflight for watch in watches]
    rows = _around(_joined(tables, INFLIGHT_ROW), INFLIGHT_REPORTED)
    rows["rank"] = _ranks(watches, [table.size for table in tables])
    rows["comm"] = _comms(watches, tables)
    return rows


def wait_rows(watches: Sequence[RankWatch], inferred: Sequence[Rows]) -> Rows:
    """Rows of WAIT_REPORTED: first all that sensors marked, then what was inferred."""
    marked = [watch.snapshot.waits for watch in watches]
    rows = _around(_joined([*marked, *inferred], WAIT), WAIT_REPORTED)
    sizes = [table.size for table in marked]
    rows["rank"] = _ranks([*watches, *watches], [*sizes, *(table.size for table in inferred)])
    rows["comm"] = _comms([*watches, *watches], [*marked, *inferred])
    kind = rows["row"]["kind"]
    rows["comm"][(kind == Kind.REMOTE_CALL) | (kind == Kind.MEETING)] = 0
    rows["inferred"][sum(sizes) :] = 1
    return rows


def splits_rows(watches: Sequence[RankWatch], splits: Sequence[Rows]) -> Rows:
    """Rows of SPLITS_REPORTED."""
    rows = _around(_joined(splits, SPLITS_ROW), SPLITS_REPORTED)
    rows["rank"] = _ranks(watches, [table.size for table in splits])
    return rows


def record_rows(watch: RankWatch, records: Rows) -> Rows:
    """Rows of RECORD_REPORTED."""
    rows = _around(records, RECORD_REPORTED)
    rows["rank"] = watch.rank
    rows["comm"] = watch.comm_ids(records["comm_slot"], records["epoch"])
    rows["comm"][records["kind"] >= Kind.STEP] = 0
    return rows


def oldest_wait_ns(watches: Sequence[RankWatch], inferred: Sequence[Rows]) -> int:
    """How long the longest wait of a living rank lasts, in ns."""
    oldest = 0
    for watch, guessed in zip(watches, inferred, strict=True):
        if watch.ended_ns:
            continue
        for waits in (watch.snapshot.waits, guessed):
            if waits.size:
                oldest = max(oldest, watch.snapshot.read_ns - int(waits["since_ns"].min()))
    return oldest


def oldest_flight_ns(watches: Sequence[RankWatch]) -> int:
    """For how long the oldest operation of a living rank has been in flight, in ns."""
    ages = [
        watch.snapshot.read_ns - int(watch.snapshot.inflight["t_issue_ns"].min())
        for watch in watches
        if watch.snapshot.inflight.size and not watch.ended_ns
    ]
    return max(ages, default=0)


def is_irregular(watch: RankWatch) -> bool:
    """Stopped, dead or dying: worth more snapshots."""
    return watch.process.state in _IRREGULAR


def _joined(tables: Sequence[Rows], dtype: np.dtype[np.void]) -> Rows:
    """One table of several, by bytes: `np.concatenate` compares all their fields first, at 20 times the cost."""
    return np.frombuffer(b"".join([table.data for table in tables]), dtype)


def _around(inner: Rows, outer: np.dtype[np.void]) -> Rows:
    """Rows of `outer` whose field `row`, the last one, is `inner`: copied as bytes, since by fields it is slow."""
    rows = np.zeros(len(inner), outer)
    if len(inner):
        size = inner.dtype.itemsize
        there = rows.view(np.uint8).reshape(len(inner), outer.itemsize)
        there[:, outer.itemsize - size :] = np.ascontiguousarray(inner).view(np.uint8).reshape(len(inner), size)
    return rows


def _ranks(watches: Sequence[RankWatch], sizes: Sequence[int]) -> np.ndarray:
    return np.repeat([watch.rank for watch in watches], sizes)


def _comms(watches: Sequence[RankWatch], tables: Sequence[Rows]) -> np.ndarray:
    reported = [(watch, table) for watch, table in zip(watches, tables, strict=True) if table.size]
    ids = [watch.comm_ids(table["comm_slot"], table["epoch"]) for watch, table in reported]
    return np.concatenate(ids) if ids else np.empty(0, np.uint64)
