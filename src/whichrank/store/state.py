"""The state of one job as columns, fed by batches of many agents.

An agent says the whole state of its node each time, so a batch replaces what the agent said before; records and events
are reported once. Times are turned from each host's own monotonic clock into the analyzer's by their age when they were
read; a batch that was `delay_bound` under way may be that much older, and the state says so (`read_after_s`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import SPLITS, Status, WaitHow
from whichrank.model.kinds import Kind
from whichrank.model.picture import MEETINGS, OPS, PAIRS, REMOTE, SPLITS_OF, WAITS, Bools, Picture, Recorded
from whichrank.model.telemetry import RANK_ROW, RATE_ROW, RECORD_REPORTED, Batch, Event, ProcessState, Stack
from whichrank.store.communicators import Communicators
from whichrank.store.departures import Departures
from whichrank.store.failures import Failures
from whichrank.store.long_ops import LongOps
from whichrank.store.paths import Paths
from whichrank.store.rank_columns import MAX_WORLD, RankColumns

UNKNOWN_DELAY_S = 10.0
"""Assumed bound of an agent's delay until its first round trip."""
MOST_DELAY_S = 1.0
"""Of a signal that asks the job to end: a bound above this is of a network that stood still, and says nothing."""
FRESH_S = 3.0
"""What was read longer ago than this is no news: its agent is silent."""
_ENDED = (ProcessState.GONE, ProcessState.ZOMBIE)


class JobState:
    """What is known of a job now."""

    def __init__(self) -> None:
        self.recorded: Recorded | None = None
        self.ranks = RankColumns()
        self.comms = Communicators()
        self.host: dict[int, str] = {}
        self.job: dict[int, str] = {}
        self._waits: dict[int, np.ndarray[Any, Any]] = {}
        self._remote: dict[int, np.ndarray[Any, Any]] = {}
        self._meetings: dict[int, np.ndarray[Any, Any]] = {}
        self._ops: dict[int, np.ndarray[Any, Any]] = {}
        self._pairs: dict[int, np.ndarray[Any, Any]] = {}
        self._splits: dict[int, np.ndarray[Any, Any]] = {}
        self._agents: dict[str, int] = {}
        self._sequence: list[int] = []
        self._restarted: set[int] = set()
        self._lossy: set[int] = set()
        self._steps = np.zeros(0, RECORD_REPORTED)
        self._heard_s: list[float] = []
        self._failures = Failures()
        self.departures = Departures(self.ranks, self._failures)
        self.long_ops = LongOps()
        self.paths = Paths()
        self.stacks: dict[int, tuple[float, list[Stack], str]] = {}
        self.profiles: dict[int, tuple[int, list[Stack]]] = {}
        self.kinds: dict[int, dict[int, int]] = {}
        self.last_completion_s = 0.0
        self.last_call_s = 0.0  # when the latest wait for a remote call began
        self.first_seen_s = 0.0
        self.last_computed_s = 0.0  # when any rank was seen to compute

    # ---- feeding ---------------------------------------------------------------------------------------------------

    def feed(self, batch: Batch, now_s: float) -> tuple[np.ndarray[Any, Any], NDArray[np.int64]]:
        """Take a batch; returns its record rows and the index of the communicator of each.

        A batch that came before is ignored.
        """
        agent = self._agents.setdefault(batch.agent, len(self._agents))
        if agent == len(self._heard_s):
            self._heard_s.append(now_s)
            self._sequence.append(-1)
        if batch.sequence <= self._sequence[agent]:
            return np.zeros(0, RECORD_REPORTED), np.zeros(0, np.int64)
        self._sequence[agent] = batch.sequence
        rows = batch.rank_rows()
        rows = rows[(rows["rank"] >= 0) & (rows["rank"] < MAX_WORLD)]
        self._take_ranks(rows, batch, agent, now_s)
        self.comms.add(batch.comm_info, self.ranks)
        if self.comms.take(batch, agent, self.ranks):  # also where its record was lost
            self.last_completion_s = max(self.last_completion_s, now_s)
        if len(rows):  # a batch that is sent again carries no states
            self._heard_s[agent] = now_s
            self._take_rates(rows["rank"], batch.rate_rows())
            self._waits[agent] = self._reported_waits(batch)
            self._remote[agent] = self._reported_remote(batch)
            self._meetings[agent] = self._reported_meetings(batch)
            self._ops[agent] = self._reported_ops(batch.inflight_rows())
            self._pairs[agent] = self._reported_pairs(batch)
            self._take_splits(batch)
        self.paths.take(batch, agent, now_s)
        records = self._reported_records(batch)
        for event in batch.events:
            if event.kind in ("signal", "asked"):
                self._take_end_signal(event, batch, now_s)
            self._take_event(event)
        return records

    def forget_agent(self, agent: str) -> None:
        """Forget the ranks of an agent that turned out to watch another job; what is sent again later is ignored."""
        number = self._agents.get(agent, -1)
        for reported in (self._waits, self._remote, self._meetings, self._ops, self._pairs):
            reported.pop(number, None)
        self.paths.forget(number)
        ranks = np.flatnonzero(self.ranks.agent == number)
        self.ranks.rows[ranks], self.ranks.rates[ranks] = np.zeros(1, RANK_ROW), np.zeros(1, RATE_ROW)
        self.ranks.present[ranks], self.ranks.agent[ranks] = False, -1
        for rank in ranks.tolist():
            self._forget_process(rank)
            self.host.pop(rank, None)
            self.job.pop(rank, None)
        self.comms.forget(number, ranks)

    def _forget_process(self, rank: int) -> None:
        """What is known of the process that was this rank."""
        self._restarted.add(rank)
        self.ranks.went_on_s[rank] = self.ranks.issuing_tid[rank] = 0
        self.long_ops.forget(rank)
        self.departures.forget(rank)
        self._failures.forget(rank)
        self._splits.pop(rank, None)
        for reported in (self.stacks, self.profiles):
            reported.pop(rank, None)

    def take_restarted(self) -> set[int]:
        """Ranks whose process was replaced by another since this was last asked."""
        restarted, self._restarted = self._restarted, set()
        return restarted

    def take_lossy(self) -> set[int]:
        """Ranks of which records were lost since this was last asked."""
        lossy, self._lossy = self._lossy, set()
        return lossy

    def take_steps(self) -> np.ndarray[Any, Any]:
        """Optimizer steps of the batch that was fed last, rows of RECORD_TOLD."""
        steps, self._steps = self._steps, self._steps[:0]
        return steps

    def _is_of_before(self, rows: np.ndarray[Any, Any], agent: int, now_s: float) -> Bools:
        """Which rows are of a dead process whose rank lives on another node by now, after an elastic restart."""
        known, reported_by = self.ranks.rows[rows["rank"]], self.ranks.agent[rows["rank"]]
        heard_s = np.array([*self._heard_s, -np.inf])[reported_by]
        lives = self.ranks.present[rows["rank"]] & ~np.isin(known["state"], _ENDED) & (now_s - heard_s < FRESH_S)
        return np.asarray(np.isin(rows["state"], _ENDED) & lives & (reported_by != agent) & _differs(known, rows))

    def _take_ranks(self, rows: np.ndarray[Any, Any], batch: Batch, agent: int, now_s: float) -> None:
        if not len(rows):
            return
        columns = self.ranks
        world = int(min(rows["world_size"].max(initial=0), MAX_WORLD))
        columns.grow(max(int(rows["rank"].max()) + 1, world))
        rows = rows[~self._is_of_before(rows, agent, now_s)]
        rank = rows["rank"]
        if not self.first_seen_s:
            self.first_seen_s = now_s
        self._lossy.update(rank[columns.rows["lost_records"][rank] < rows["lost_records"]].tolist())
        before = columns.rows[rank]
        another = columns.present[rank] & _differs(before, rows)
        for restarted in rank[another].tolist():
            self._forget_process(restarted)
        delay = batch.delay_bound_ns / 1e9 if batch.delay_bound_ns >= 0 else UNKNOWN_DELAY_S
        age = (batch.sent_ns - rows["read_ns"].astype(np.int64)) / 1e9
        columns.rows[rank] = rows
        columns.present[rank] = True
        columns.read_s[rank] = now_s - age
        columns.read_after_s[rank] = now_s - age - delay
        columns.offset_s[rank] = now_s - batch.sent_ns / 1e9
        elapsed_ns = rows["read_ns"].astype(np.float64) - before["read_ns"]
        used_ns = rows["cpu_ns"].astype(np.float64) - before["cpu_ns"]
        measured = (before["pid"] == rows["pid"]) & (elapsed_ns > 0)
        share = np.divide(used_ns, elapsed_ns, out=np.zeros(len(rows)), where=measured)
        columns.cpu_share[rank] = np.where(measured, 0.5 * columns.cpu_share[rank] + 0.5 * share, 1.0)
        for polls, state in (
            (columns.stopped_polls, ProcessState.STOPPED), (columns.running_polls, ProcessState.RUNNING),
        ):  # fmt: skip
            polls[rank] = np.where(rows["state"] == state, polls[rank] + 1, 0)
        columns.stopped_since_s[rank] = np.where(
            columns.stopped_polls[rank] > 1, columns.stopped_since_s[rank], columns.read_s[rank]
        )
        if columns.compute(rank).any():
            self.last_computed_s = now_s
        for r in rank[columns.agent[rank] != agent].tolist():
            self.host[r], self.job[r] = batch.host, batch.job
        columns.agent[rank] = agent

    def _take_rates(self, ranks: NDArray[np.int32], rates: np.ndarray[Any, Any]) -> None:
        """The latest window of each rank; none of a rank of this batch that is not sampled."""
        self.ranks.rates[ranks] = np.zeros(1, RATE_ROW)
        known = rates[np.isin(rates["rank"], ranks)]
        self.ranks.rates[known["rank"]] = known

    def was_observed(self, rank: int) -> bool:
        """Did an agent look at its process? A recording of operations alone knows none."""
        return self.recorded is None or bool(self.ranks.rows["state"][rank] != ProcessState.UNKNOWN)

    def _known(self, reported: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], NDArray[np.int64]]:
        comm = self.comms.index(reported["comm"])
        good = (comm >= 0) & (reported["rank"] >= 0) & (reported["rank"] < self.ranks.size)
        return (reported, comm) if good.all() else (reported[good], comm[good])

    def _reported_waits(self, batch: Batch) -> np.ndarray[Any, Any]:
        reported, comm = self._known(batch.wait_rows())
        waits = np.zeros(len(reported), WAITS)
        row = reported["row"]
        for name in ("tid", "counter", "kind", "peer", "tag", "how", "dtype", "reduce_op", "count"):
            waits[name] = row[name]
        waits["rank"], waits["comm"] = reported["rank"], comm
        waits["since_s"] = self.ranks.host_s(reported["rank"], row["since_ns"])
        waits["issue_s"] = self.ranks.host_s(reported["rank"], row["t_issue_ns"])
        waits["explicit"] = (reported["inferred"] == 0) & (row["how"] != WaitHow.POLL)
        waits["timeout_s"] = row["timeout_ms"] / 1e3
        return waits

    def _reported_remote(self, batch: Batch) -> np.ndarray[Any, Any]:
        reported = batch.wait_rows()
        rank, row = reported["rank"], reported["row"]
        reported = reported[(row["kind"] == Kind.REMOTE_CALL) & (rank >= 0) & (rank < self.ranks.size)]
        rows = np.zeros(len(reported), REMOTE)
        rows["rank"], rows["tid"], rows["peer"] = reported["rank"], reported["row"]["tid"], reported["row"]["peer"]
        rows["peer"][(rows["peer"] < 0) | (rows["peer"] >= self.ranks.size)] = -1
        rows["since_s"] = self.ranks.host_s(reported["rank"], reported["row"]["since_ns"])
        self.last_call_s = max(self.last_call_s, float(rows["since_s"].max(initial=0.0)))
        return rows

    def _reported_meetings(self, batch: Batch) -> np.ndarray[Any, Any]:
        reported = batch.wait_rows()
        reported = reported[
            (reported["row"]["kind"] == Kind.MEETING) & (reported["rank"] >= 0) & (reported["rank"] < self.ranks.size)
        ]
        rows, row = np.zeros(len(reported), MEETINGS), reported["row"]
        rows["rank"], rows["first"], rows["stride"], rows["size"] = (
            reported["rank"],
            row["peer"],
            row["tag"],
            row["count"],
        )
        rows["size"][(rows["size"] < 0) | (rows["size"] > self.ranks.size)] = 0
        last = rows["first"] + rows["stride"] * (rows["size"] - 1)
        rows["size"][(rows["first"] < 0) | (rows["stride"] < 1) | (last >= self.ranks.size)] = 0
        rows["since_s"] = self.ranks.host_s(reported["rank"], row["since_ns"])
        return rows

    def _reported_ops(self, reported: np.ndarray[Any, Any], failed: bool = False) -> np.ndarray[Any, Any]:
        reported, comm = self._known(reported)
        ops = np.zeros(len(reported), OPS)
        row = reported["row"]
        for name in ("counter", "kind", "peer", "dtype", "reduce_op", "count", "flags", "ordinal"):
            ops[name] = row[name]
        if not failed:
            ops["tag"], ops["signature"], ops["tid"] = row["tag"], row["signature"], row["issue_tid"]
        ops["rank"], ops["comm"], ops["failed"] = reported["rank"], comm, failed
        ops["issue_s"] = self.ranks.host_s(reported["rank"], row["t_issue_ns"])
        return ops

    def _reported_pairs(self, batch: Batch) -> np.ndarray[Any, Any]:
        rows = batch.pair_rows()
        comm = self.comms.index(rows["comm_id"])
        good = (comm >= 0) & (rows["rank"] >= 0) & (rows["rank"] < self.ranks.size)
        pairs = np.zeros(int(good.sum()), PAIRS)
        for name in ("rank", "kind", "peer", "tag", "issued", "completed"):
            pairs[name] = rows[name][good]
        pairs["comm"] = comm[good]
        return pairs

    def _take_splits(self, batch: Batch) -> None:
        """What the latest all-to-alls of some ranks send and expect: all that is known of them, reported once."""
        reported = batch.splits_rows()
        comm = self.comms.index(reported["row"]["comm_id"])
        good = (
            (comm >= 0)
            & (reported["rank"] >= 0)
            & (reported["rank"] < self.ranks.size)
            & (reported["row"]["splits"] <= SPLITS)
        )
        rows = np.zeros(int(good.sum()), SPLITS_OF)
        for name in ("counter", "splits", "count", "out_count", "split_in", "split_out"):
            rows[name] = reported["row"][name][good]
        rows["rank"], rows["comm"] = reported["rank"][good], comm[good]
        for rank in np.unique(rows["rank"]).tolist():
            self._splits[rank] = rows[rows["rank"] == rank]

    def _reported_records(self, batch: Batch) -> tuple[np.ndarray[Any, Any], NDArray[np.int64]]:
        rows = batch.record_rows()
        is_step = rows["row"]["kind"] == Kind.STEP
        if is_step.any():
            known = is_step & (rows["rank"] >= 0) & (rows["rank"] < self.ranks.size)
            self._steps, rows = rows[known], rows[~is_step]
        reported, comm = self._known(rows)
        failed = reported[reported["row"]["status"] == Status.FAILED]
        for rank in np.unique(failed["rank"]).tolist():
            of_rank = failed[failed["rank"] == rank]
            self._failures.add(rank, self._reported_ops(of_rank, failed=True), of_rank["row"]["t_end_ns"].tolist())
        if len(reported):
            ends = self.ranks.host_s(reported["rank"], reported["row"]["t_end_ns"])
            done = reported["row"]["status"] == Status.DONE
            issued = self.ranks.host_s(reported["rank"], reported["row"]["t_issue_ns"])
            delay_s = batch.delay_bound_ns / 1e9 if batch.delay_bound_ns >= 0 else UNKNOWN_DELAY_S
            np.maximum.at(self.ranks.went_on_s, reported["rank"][done], issued[done] - delay_s)
            self.long_ops.add(reported["rank"][done], issued[done], ends[done])
            self.last_completion_s = max(self.last_completion_s, float(ends[done].max(initial=0.0)))
            key = comm * 64 + reported["row"]["kind"]
            for value, n in zip(*np.unique(key, return_counts=True), strict=True):
                kinds = self.kinds.setdefault(int(value) // 64, {})
                kinds[int(value) % 64] = kinds.get(int(value) % 64, 0) + int(n)
        return reported, comm

    def _take_end_signal(self, event: Event, batch: Batch, now_s: float) -> None:
        """At the earliest time that it can have been: its consequences on other nodes may have travelled faster."""
        delay_s = batch.delay_bound_ns / 1e9 if batch.delay_bound_ns >= 0 else MOST_DELAY_S
        at_s = now_s - (batch.sent_ns - event.at_ns) / 1e9 - min(delay_s, MOST_DELAY_S)
        interruption = self.departures.interruption if event.kind == "signal" else self.departures.passed_on
        interruption.take(batch.node or batch.host, event.at_ns, at_s, event.text)

    def _take_event(self, event: Event) -> None:
        if not 0 <= event.rank < self.ranks.size or event.pid != self.ranks.rows["pid"][event.rank]:
            return  # of the node, or of a process that was replaced
        self.departures.take(event)
        if event.kind == "stacks":
            self.stacks[event.rank] = (event.at_ns / 1e9, event.stacks, event.text)
        elif event.kind == "profile":
            self.profiles[event.rank] = (event.at_ns, event.stacks)

    # ---- looking ---------------------------------------------------------------------------------------------------

    def dealt_with_failure(self, ranks: list[int]) -> bool:
        """Has one of these gone on after an operation of its own had failed?"""
        failure_s = self.ranks.host_s(np.array(ranks, np.int64), self.ranks.rows["first_failure_ns"][ranks])
        return bool(((failure_s > 0) & (self.ranks.went_on_s[ranks] > failure_s)).any())

    def reported_ops_of(self, agent: str) -> np.ndarray[Any, Any]:
        """Operations in flight on one agent's node, rows of OPS."""
        return self._ops.get(self.agent_number(agent), np.zeros(0, OPS))

    def agent_number(self, agent: str) -> int:
        """The number that an agent's ranks carry, -1 unknown."""
        return self._agents.get(agent, -1)

    def frontier(self, comm: int, rank: int) -> tuple[int, int]:
        """Operations that a rank has issued and completed on a communicator, as reported last."""
        return self.comms.frontier(comm, rank)

    def ordinal(self, rank: int) -> int:
        """Operations that a rank has issued in all, as reported last."""
        return int(self.ranks.rows["ordinal"][rank]) if rank < self.ranks.size else 0

    def agents_heard_s(self, now_s: float) -> float:
        """Seconds since any agent spoke."""
        return now_s - max(self._heard_s) if self._heard_s else 0.0

    def picture(self, now_s: float) -> Picture:
        """The job as it is known now."""
        r = self.ranks
        gone = self.ranks.have_ended() | (r.rows["closed_ns"] > 0)
        heard_s = np.array([*self._heard_s, -np.inf])[r.agent]
        return Picture(
            now_s=now_s,
            present=r.present.copy(),
            fresh=now_s - np.where(r.rows["ended_ns"] > 0, heard_s, r.read_s) <= FRESH_S,
            read_s=r.read_s.copy(),
            read_after_s=r.read_after_s.copy(),
            main_tid=r.rows["pid"].astype(np.int64),
            stopped=(r.stopped_polls >= 2) & ~gone,
            gone=gone & r.present,
            busy=r.rows["busy"] > 0,
            waits=self._own(WAITS, self._waits),
            ops=np.concatenate([self._own(OPS, self._ops), *self._failures.ops.values()])
            if self._failures.ops
            else self._own(OPS, self._ops),
            pairs=self._own(PAIRS, self._pairs),
            splits=np.concatenate(list(self._splits.values())) if self._splits else np.zeros(0, SPLITS_OF),
            comm_at=self.comms.at,
            comm_size=self.comms.size,
            member_rank=self.comms.member_rank.copy(),
            member_issued=self.comms.member_issued.copy(),
            member_done=self.comms.member_done.copy(),
            member_tid=self.comms.member_tid.copy(),
            member_seen=self.comms.member_seen.copy(),
            recorded=self.recorded,
            remote=self._own(REMOTE, self._remote),
            meetings=self._own(MEETINGS, self._meetings),
            issuing_tid=r.issuing_tid.copy(),
        )

    def _own(self, dtype: np.dtype[Any], reported: dict[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Rows of all agents, but none of a rank that another agent says by now: what an agent said before it died."""
        # By bytes: `np.concatenate` compares the fields of every part first, which takes longer than all the rest.
        rows = np.frombuffer(b"".join([part.tobytes() for part in reported.values()]), dtype)
        agent = (
            np.repeat(list(reported), [len(part) for part in reported.values()]) if reported else np.zeros(0, np.int64)
        )
        own: np.ndarray[Any, Any] = rows[self.ranks.agent[rows["rank"]] == agent]
        return own


def _differs(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Bools:
    """Are these rows of RANK_ROW of two processes? Pids of pods are alike."""
    return np.asarray((one["pid"] != other["pid"]) | (one["created_ns"] != other["created_ns"]))
