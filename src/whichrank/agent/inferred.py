"""Waits that no sensor can mark, inferred from in-flight rows and from what threads do.

    FUTURE  somebody took the operation's future and may wait on it unseen (DDP's reducer): the oldest such operation of
            a thread that lay in a futex, without using any CPU, at two snapshots in a row
    ENTRY   the call that issues the operation has not returned for a second, at two snapshots, and its thread does not
    run POLL    the program asked is_completed() within the last second

A thread that has a wait row of its own is left alone: the sensor knows better. Every row says how it was inferred, and
the first snapshot that saw the state is its begin, so a wait is never reported longer than it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from whichrank.agent.processes import ThreadSnapshot
from whichrank.model.codes import Flag, WaitHow
from whichrank.model.rows import WAIT
from whichrank.model.telemetry import ProcessState, WaitChannel
from whichrank.ring.reader import RingSnapshot, Rows

ENTRY_AFTER_NS: Final = 1_000_000_000
POLL_WITHIN_NS: Final = 1_000_000_000
FUTURE_AFTER_NS: Final = 200_000_000
"""Younger operations are not worth a look at their thread: most complete before the next snapshot."""
_IN_CALL: Final = 1
_NO_WAITS: Final[Rows] = np.empty(0, WAIT)

Thread = Callable[[int], ThreadSnapshot]
_Key = tuple[int, int, int, int]


class _Sighting(NamedTuple):
    since_ns: int
    cpu_ns: int


class WaitInference:
    """The state between the looks at one rank."""

    def __init__(self) -> None:
        self._seen: dict[_Key, _Sighting] = {}

    def waits(self, snapshot: RingSnapshot, thread: Thread) -> Rows:
        """Inferred waits as rows of WAIT; `thread` looks at one by its tid."""
        before, self._seen = self._seen, {}
        if not snapshot.inflight.size or _is_fresh(snapshot):
            return _NO_WAITS
        marked = {int(tid) for tid in snapshot.waits["tid"]}
        found: list[tuple[int, WaitHow, int, int]] = []
        for place, tid in self._in_call(snapshot, marked):
            now = thread(tid)
            running = now.state in (ProcessState.RUNNING, ProcessState.UNKNOWN)
            if self._again(before, snapshot, place, WaitHow.ENTRY, tid, snapshot.read_ns, now.cpu_ns, not running):
                found.append((place, WaitHow.ENTRY, tid, int(snapshot.inflight["t_issue_ns"][place])))
                marked.add(tid)
        for place, tid in self._futures(snapshot, marked):
            now = thread(tid)
            key = _key(snapshot, place, WaitHow.FUTURE, tid)
            asleep = now.channel == WaitChannel.LOCK and now.cpu_ns >= 0
            if self._again(before, snapshot, place, WaitHow.FUTURE, tid, snapshot.read_ns, now.cpu_ns, asleep):
                found.append((place, WaitHow.FUTURE, tid, self._seen[key].since_ns))
                marked.add(tid)
        for place, tid in self._polled(snapshot, marked):
            polled_ns = int(snapshot.inflight["polled_ns"][place])
            key = _key(snapshot, place, WaitHow.POLL, tid)
            self._seen[key] = before.get(key, _Sighting(polled_ns, 0))
            found.append((place, WaitHow.POLL, tid, self._seen[key].since_ns))
        return _rows(snapshot, found) if found else _NO_WAITS

    def _again(
        self,
        before: dict[_Key, _Sighting],
        snapshot: RingSnapshot,
        place: int,
        how: WaitHow,
        tid: int,
        now_ns: int,
        cpu_ns: int,
        idle: bool,
    ) -> bool:
        """Note an idle thread; True if it was idle at the snapshot before, and used no CPU since."""
        if not idle:
            return False
        key = _key(snapshot, place, how, tid)
        earlier = before.get(key)
        same = earlier is not None and (earlier.cpu_ns == cpu_ns or how == WaitHow.ENTRY)
        self._seen[key] = earlier if same and earlier else _Sighting(now_ns, cpu_ns)
        return same

    def _in_call(self, snapshot: RingSnapshot, marked: set[int]) -> list[tuple[int, int]]:
        rows = snapshot.inflight
        old = (rows["state"] == _IN_CALL) & (rows["t_issue_ns"] + np.uint64(ENTRY_AFTER_NS) < snapshot.read_ns)
        return _oldest_per_thread(rows, old, marked)

    def _futures(self, snapshot: RingSnapshot, marked: set[int]) -> list[tuple[int, int]]:
        rows = snapshot.inflight
        taken = (rows["flags"] & Flag.FUTURE_TAKEN) != 0
        if not taken.any():
            return []
        taken &= rows["t_issue_ns"] + np.uint64(FUTURE_AFTER_NS) < snapshot.read_ns
        return _oldest_per_thread(rows, taken, marked)

    def _polled(self, snapshot: RingSnapshot, marked: set[int]) -> list[tuple[int, int]]:
        rows = snapshot.inflight
        recent = (rows["polled_ns"] != 0) & (rows["polled_ns"] + np.uint64(POLL_WITHIN_NS) > snapshot.read_ns)
        return _oldest_per_thread(rows, recent, marked)


def _is_fresh(snapshot: RingSnapshot) -> bool:
    """Nothing to infer from operations that are young and that nobody polls: nearly every snapshot of a healthy job."""
    rows = snapshot.inflight
    return int(rows["t_issue_ns"].min()) + FUTURE_AFTER_NS >= snapshot.read_ns and not rows["polled_ns"].any()


def _oldest_per_thread(rows: Rows, chosen: np.ndarray, marked: set[int]) -> list[tuple[int, int]]:
    """(place, tid) of the oldest chosen row of each thread that has no mark."""
    oldest: dict[int, int] = {}
    for place in chosen.nonzero()[0]:
        tid = int(rows["issue_tid"][place])
        if tid in marked:
            continue
        if tid not in oldest or rows["t_issue_ns"][place] < rows["t_issue_ns"][oldest[tid]]:
            oldest[tid] = int(place)
    return [(place, tid) for tid, place in oldest.items()]


def _key(snapshot: RingSnapshot, place: int, how: WaitHow, tid: int) -> _Key:
    row = snapshot.inflight[place]
    return int(row["comm_id"]), int(row["counter"]), tid, int(how)


def _rows(snapshot: RingSnapshot, found: list[tuple[int, WaitHow, int, int]]) -> Rows:
    waits = np.zeros(len(found), WAIT)
    places = np.array([place for place, _, _, _ in found])
    rows = snapshot.inflight[places]
    for name in ("comm_id", "counter", "peer", "comm_slot", "epoch", "kind", "dtype", "reduce_op", "count"):
        waits[name] = rows[name]
    for name in ("timeout_ms", "tag", "t_issue_ns"):
        waits[name] = rows[name]
    waits["how"] = [how for _, how, _, _ in found]
    waits["tid"] = [tid for _, _, tid, _ in found]
    waits["since_ns"] = [since_ns for _, _, _, since_ns in found]
    waits["inflight"] = snapshot.inflight_slots[places]
    return waits
