"""A simulated job told to a real analyzer: one agent per rank, each on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from batches import T0, Node, S, comm_info
from simulated import Reported

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.codes import Status
from whichrank.model.incident import Incident
from whichrank.model.kinds import Kind
from whichrank.model.telemetry import RECORD_REPORTED, CommInfo, ProcessState

EVERY_S = 0.5
BACKEND = "gloo"
WITH_STEPS = True
"""Its ranks make optimizer steps that are seen."""
NAMES = {0: "mesh_tp", 1: "mesh_pp", 2: "mesh_dp", 3: "default_pg"}


def watch(
    reported: Reported,
    window_s: float = 4.0,
    stolen_s: Callable[[int, float], float] | None = None,
    throttled_s: Callable[[int, float], float] | None = None,
    every_s: float = EVERY_S,
    again: Reported | None = None,
    given: Callable[[int, int], tuple[int, int]] | None = None,
) -> list[Incident]:
    """Everything that an analyzer says, in order.

    Args:
        reported: The job.
        window_s: Of slowness.
        stolen_s: How much CPU time the hypervisor has taken from the node of a rank by then, seconds.
        throttled_s: How long a control group has kept a rank from its CPU by then, seconds.
        every_s: Time between batches.
        again: All its processes are replaced by those of this one.
        given: How many numbers a rank is given in an iteration, and the length of their sequences.
    """
    analyzer = Analyzer(AnalyzerConfig(slow_window_s=window_s), "job", 0.0)
    said: list[Incident] = []
    begin_s = 0.0
    for life, one in enumerate([reported] if again is None else [reported, again]):
        ops, steps = one.arrays()
        infos = _comms(ops)
        rows, at_s = _records(one, ops, steps, infos, begin_s, given)
        ranks = np.unique(ops["rank"]).tolist()
        nodes = [
            _node(those, len(ranks), infos)
            for those in ([ranks] if reported.on_one_node else [[rank] for rank in ranks])
        ]
        for node in nodes:
            node.agent += "2" * life
            for rank in node.ranks:
                node.is_(rank, ProcessState.SLEEPING, pid=100 + 1000 * life + rank)
        for now_s in np.arange(begin_s + every_s, at_s[-1] + 1.0, every_s).tolist():
            news = rows[np.searchsorted(at_s, now_s - every_s) : np.searchsorted(at_s, now_s)]
            batches = []
            for node in nodes:
                if stolen_s:
                    worked = {"main_cpu_ns": int(now_s * S), "node_ns": int(now_s * S)}
                    taken = {"stolen_ns": int(stolen_s(node.ranks[0], now_s) * S), **worked}
                    node.is_(node.ranks[0], ProcessState.SLEEPING, usage_ns=node.ns(now_s), **taken)
                if throttled_s:
                    held = throttled_s(node.ranks[0], now_s)
                    limit = {"limit_cores": 0.03 if held else np.inf, "allowed_cores": 2, "throttled_ns": int(held * S)}
                    node.is_(node.ranks[0], ProcessState.SLEEPING, usage_ns=node.ns(now_s), **limit)
                batches.append(node.batch(now_s, news[np.isin(news["rank"], node.ranks)]))
            analyzer.feed_all(batches, T0 / S + now_s)
            said += analyzer.tick(T0 / S + now_s)
            if analyzer.slowness_failed:
                raise analyzer.slowness_failed
        begin_s = float(at_s[-1]) + 1.0
    return said


def _records(
    reported: Reported,
    ops: np.ndarray,
    steps: np.ndarray,
    infos: dict[int, CommInfo],
    begin_s: float,
    given: Callable[[int, int], tuple[int, int]] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of RECORD_REPORTED in the order of their ends, and when each ended, seconds."""
    member = {(c, r): info.members.index(r) for c, info in infos.items() for r in info.members}
    rows = np.zeros(len(ops), RECORD_REPORTED)
    rows["rank"], rows["comm"] = ops["rank"], ops["comm"] + 1
    row = rows["row"]
    for name in ("counter", "ordinal", "count", "kind"):
        row[name] = ops[name]
    row["t_issue_ns"], row["t_start_ns"], row["t_end_ns"] = ops["issue_ns"], ops["issue_ns"], ops["end_ns"]
    row["wait_us"], row["status"], row["dtype"] = ops["blocked_ns"] // 1000, Status.DONE, 6
    row["peer"] = [member.get((c, p), -1) for c, p in zip(ops["comm"].tolist(), ops["peer"].tolist(), strict=True)]
    marks = np.zeros(len(steps), RECORD_REPORTED)
    marks["rank"] = steps["rank"]
    marks["row"]["kind"], marks["row"]["status"], marks["row"]["peer"] = Kind.STEP, Status.DONE, -1
    marks["row"]["counter"], marks["row"]["ordinal"] = steps["counter"], steps["ordinal"]
    marks["row"]["t_issue_ns"] = marks["row"]["t_end_ns"] = steps["at_ns"]
    if given:
        notes = marks.copy()
        notes["row"]["kind"] = Kind.WORK
        notes["row"]["t_issue_ns"] = notes["row"]["t_end_ns"] = steps["at_ns"] + 1000
        for note in notes:
            note["row"]["count"], note["row"]["counter"] = given(int(note["rank"]), int(note["row"]["counter"]))
        rows = np.concatenate((rows, notes))
    passes = np.zeros(len(reported.passes), RECORD_REPORTED)
    passes["row"]["kind"], passes["row"]["status"], passes["row"]["peer"] = Kind.PASS, Status.DONE, -1
    for note, (rank, begin_ns, end_ns) in zip(passes, reported.passes, strict=True):
        note["rank"], note["row"]["t_issue_ns"], note["row"]["t_end_ns"] = rank, begin_ns, end_ns
    rows = np.concatenate((rows, passes))
    rows = np.concatenate((rows, marks)) if WITH_STEPS else rows
    for name in ("t_issue_ns", "t_start_ns", "t_end_ns"):
        rows["row"][name] += np.uint64(begin_s * S)
    at_s = (rows["row"]["t_end_ns"].astype(np.int64) - reported.clock(rows["rank"])) / S
    order = np.argsort(at_s, kind="stable")
    return rows[order], at_s[order]


def _comms(ops: np.ndarray) -> dict[int, CommInfo]:
    infos = {}
    for comm in np.unique(ops["comm"]).tolist():
        members = np.unique(ops["rank"][ops["comm"] == comm]).tolist()
        info = comm_info(comm + 1, members, NAMES[comm // 1000])
        infos[comm] = msgspec.structs.replace(info, backend=BACKEND)
    return infos


def _node(ranks: list[int], world: int, infos: dict[int, CommInfo]) -> Node:
    node = Node(f"node{ranks[0]}:1", ranks, world, clock_s=ranks[0] * 3700.0)
    return node.comm(*(info for info in infos.values() if set(info.members) & set(ranks)))
