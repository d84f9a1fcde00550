"""Network requests of NCCL over InfiniBand that are late: without a completion (`WQE stall`), or slow (`WQE slow`).

A line has the GID of both ends and the number of the queue pair. A queue pair belongs to one process, so where the
other end has a line too, its queue pair says which rank that is; else its GID does, which ranks of a node may share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from whichrank.intake.plain_text import for_people
from whichrank.model.reports import Report, Told

HINT: Final = "NET/IB: WQE s"
MOST: Final = 1 << 16
SHOWN: Final = 4
_REQUEST: Final = re.compile(
    r"WQE (?:stall \(no CQE\)|slow): peer=(\S{1,96}) "
    r"\| local: qpn=(\d{1,10}) dev=(\S{1,64}) .{0,64}?localGid=(\S{1,64}) "
    r"\| remote: qpn=(\d{1,10}) .{0,64}?remoteGid=(\S{1,64}) \| "
    r"(?:stall_thr=\d{1,20}ns age=(\d{1,20})ns inflight=(\d{1,9})|thr=\d{1,20}ns delta=(\d{1,20})ns)"
)
Process = tuple[str, int]
"""Host and pid."""
_End = tuple[str, int]
"""GID and queue pair."""


class _Late(NamedTuple):
    """The latest of a queue pair: nanoseconds, requests in flight (0: it has ended), and how many lines there are."""

    ns: int
    in_flight: int
    lines: int
    peer: str
    device: str


class LateRequests:
    """Such lines of a log."""

    def __init__(self) -> None:
        self._by_gid: dict[str, set[Process]] = {}
        self._by_end: dict[_End, Process] = {}
        self._late: dict[tuple[bool, Process, _End], _Late] = {}

    def see(self, process: Process, text: str) -> bool:
        """A line of a process; whether it is one."""
        found = _REQUEST.search(text)
        if not found or len(self._late) >= MOST:
            return False
        peer, qpn, device, gid, other_qpn, other_gid, age_ns, in_flight, delta_ns = found.groups()
        self._by_gid.setdefault(gid, set()).add(process)
        self._by_end[gid, int(qpn)] = process
        key = delta_ns is None, process, (other_gid, int(other_qpn))
        before = self._late.get(key)
        ns = max(int(age_ns or delta_ns), before.ns if before else 0)
        self._late[key] = _Late(ns, int(in_flight or 0), before.lines + 1 if before else 1, peer, device)
        return True

    def reports(self, rank_of: Mapping[Process, int]) -> list[Report]:
        """Of whom, and toward whom if that is known; who is an end of most is first.

        Where some have no completion, those that have ended are not counted.

        Args:
            rank_of: By process.
        """
        is_stall = any(stalled for stalled, _, _ in self._late)
        counts: dict[int, int] = {}
        texts = []
        of_kind = [(process, end, late) for (stalled, process, end), late in self._late.items() if stalled == is_stall]
        for process, end, late in sorted(of_kind, key=lambda one: -one[2].ns):
            known = self._by_end.get(end)
            others = (known,) if known else sorted(self._by_gid.get(end[0], ()))
            ends = [rank_of[one] for one in (process, *others) if one in rank_of]
            for rank in dict.fromkeys(ends):
                counts[rank] = counts.get(rank, 0) + 1
            at = f"rank {ends[0]}" if process in rank_of else f"{for_people(process[0], 96)}:{process[1]}"
            to = f"rank {rank_of[known]}" if known is not None and known in rank_of else for_people(late.peer, 96)
            much = f"{late.in_flight} in flight for" if is_stall else f"{late.lines} of up to"
            texts.append(f"{at} to {to} by {for_people(late.device, 32)}: {much} {late.ns / 1e9:.1f} s")
        if not texts:
            return []
        ranks = sorted(counts, key=lambda rank: (-counts[rank], rank))
        told = Told.REQUESTS_LATE if is_stall else Told.REQUESTS_SLOW
        return [Report(told, tuple(ranks), "; ".join(texts[:SHOWN]))]
