"""The state of one job as columns, fed by batches of many agents.

An agent tells the whole state of its node each time, so a batch replaces what the agent said before; records and events
are told once. Times are turned from each host's own monotonic clock into the analyzer's by their age when they were
read; a batch that was `delay_bound` under way may be that much older, and the state says so (`read_after_s`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.codes import SPLITS, Status, WaitHow
from whichrank.model.ends import Ends
from whichrank.model.kinds import Kind
from whichrank.model.picture import MEETINGS, OPS, PAIRS, REMOTE, SPLITS_OF, WAITS, Bools, Floats, Picture, Recorded
from whichrank.model.telemetry import RANK_ROW, RATE_ROW, RECORD_TOLD, Batch, CommInfo, Event, ProcessState, Stack
from whichrank.store.growing import Growing
from whichrank.store.interruption import GRACE_S, Interruption
from whichrank.store.long_ops import LongOps
from whichrank.store.paths import Paths
from whichrank.store.rank_columns import RankColumns

UNKNOWN_DELAY_S = 10.0
"""Assumed bound of an agent's delay until its first round trip."""
MOST_DELAY_S = 1.0
"""Of a signal that asks the job to end: a bound above this is of a network that stood still, and says nothing."""
FRESH_S = 3.0
"""What was read longer ago than this is no news: its agent is silent."""
_ENDED = (ProcessState.GONE, ProcessState.ZOMBIE)
MAX_WORLD = 1 << 20
MAX_MEMBERSHIPS = 1 << 24
_MEMBER_COLUMNS = ("member_rank", "member_issued", "member_done", "member_tid")
_MEMBER_FLAGS = ("member_seen",)
_NO_PLACE = (np.zeros(0, np.int64), np.zeros(0, np.int64))


class JobState:
    """What is known of a job now."""

    def __init__(self) -> None:
        self.recorded: Recorded | None = None
        self.ranks = RankColumns()
        self.info: list[CommInfo] = []
        self.host: dict[int, str] = {}
        self.job: dict[int, str] = {}
        self._comm_index: dict[int, int] = {}
        self._sorted_ids = np.zeros(0, np.uint64)
        self._sorted_index = np.zeros(0, np.int64)
        self._columns = {name: Growing(np.int64) for name in ("comm_at", "comm_size", *_MEMBER_COLUMNS)}
        self._columns |= {name: Growing(np.bool_) for name in _MEMBER_FLAGS}
        self.comm_at = self.comm_size = np.zeros(0, np.int64)
        self.member_rank = self.member_issued = self.member_done = self.member_tid = np.zeros(0, np.int64)
        self.member_seen = np.zeros(0, np.bool_)
        self._places: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._place = _NO_PLACE
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
        self._steps = np.zeros(0, RECORD_TOLD)
        self._heard_s: list[float] = []
        self.failed_ops: dict[int, np.ndarray[Any, Any]] = {}
        self.long_ops = LongOps()
        self.interruption = Interruption()
        self.passed_on = Interruption()  # by launchers to their ranks; they end them after a death, too
        self.paths = Paths()
        self.stacks: dict[int, tuple[float, list[Stack], str]] = {}
        self.profiles: dict[int, tuple[int, list[Stack]]] = {}
        self.exits: dict[int, Event] = {}
        self._asked: dict[int, tuple[int, int]] = {}  # the pid of a rank, and when it was sent a signal to end
        self._ancestors: dict[int, tuple[int, list[int]]] = {}  # the pid of a rank and of those that started it
        self._got_over: dict[int, tuple[np.void, int]] = {}  # the rank's row then, and until when by its host's clock
        self._failed_ns: dict[int, list[int]] = {}  # ends of operations that failed, by their host's clock
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
            return np.zeros(0, RECORD_TOLD), np.zeros(0, np.int64)
        self._sequence[agent] = batch.sequence
        rows = batch.rank_rows()
        rows = rows[(rows["rank"] >= 0) & (rows["rank"] < MAX_WORLD)]
        self._take_ranks(rows, batch, agent, now_s)
        self._add_comms(batch.comm_info)
        self._take_comms(batch, agent, now_s)
        if len(rows):  # a batch that is sent again carries no states
            self._heard_s[agent] = now_s
            self._take_rates(rows["rank"], batch.rate_rows())
            self._waits[agent] = self._told_waits(batch)
            self._remote[agent] = self._told_remote(batch)
            self._meetings[agent] = self._told_meetings(batch)
            self._ops[agent] = self._told_ops(batch.inflight_rows())
            self._pairs[agent] = self._told_pairs(batch)
            self._take_splits(batch)
        self.paths.take(batch, agent, now_s)
        records = self._told_records(batch)
        for event in batch.events:
            if event.kind in ("signal", "asked"):
                self._take_end_signal(event, batch, now_s)
            self._take_event(event)
        return records

    def forget_agent(self, agent: str) -> None:
        """Forget the ranks of an agent that turned out to watch another job; what is sent again later is ignored."""
        number = self._agents.get(agent, -1)
        for told in (self._waits, self._remote, self._meetings, self._ops, self._pairs, self._places):
            told.pop(number, None)
        self.paths.forget(number)
        ranks = np.flatnonzero(self.ranks.agent == number)
        self.ranks.rows[ranks], self.ranks.rates[ranks] = np.zeros(1, RANK_ROW), np.zeros(1, RATE_ROW)
        self.ranks.present[ranks], self.ranks.agent[ranks] = False, -1
        for rank in ranks.tolist():
            self._forget_process(rank)
            self.host.pop(rank, None)
            self.job.pop(rank, None)
        theirs = np.isin(self.member_rank, ranks)
        self.member_seen[theirs] = False
        self.member_issued[theirs] = self.member_done[theirs] = self.member_tid[theirs] = 0

    def _forget_process(self, rank: int) -> None:
        """What is known of the process that was this rank."""
        self._restarted.add(rank)
        self._got_over.pop(rank, None)
        self._failed_ns.pop(rank, None)
        self.ranks.went_on_s[rank] = self.ranks.issuing_tid[rank] = 0
        self.long_ops.forget(rank)
        self.failed_ops.pop(rank, None)
        self._splits.pop(rank, None)
        for told in (self.exits, self.stacks, self.profiles):
            told.pop(rank, None)

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
        known, told_by = self.ranks.rows[rows["rank"]], self.ranks.agent[rows["rank"]]
        heard_s = np.array([*self._heard_s, -np.inf])[told_by]
        lives = self.ranks.present[rows["rank"]] & ~np.isin(known["state"], _ENDED) & (now_s - heard_s < FRESH_S)
        return np.asarray(np.isin(rows["state"], _ENDED) & lives & (told_by != agent) & _differs(known, rows))

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
        for looks, state in (
            (columns.stopped_looks, ProcessState.STOPPED), (columns.running_looks, ProcessState.RUNNING),
        ):  # fmt: skip
            looks[rank] = np.where(rows["state"] == state, looks[rank] + 1, 0)
        columns.stopped_since_s[rank] = np.where(
            columns.stopped_looks[rank] > 1, columns.stopped_since_s[rank], columns.read_s[rank]
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

    def _add_comms(self, told: list[CommInfo]) -> None:
        """Learn communicators; what cannot be one is left out, so that nobody's numbers make us allocate."""
        new: dict[int, CommInfo] = {}
        for info in told:
            fits = 0 < info.size <= max(self.ranks.size, len(info.members)) and 0 < info.comm_id < 1 << 64
            if fits and info.comm_id not in self._comm_index:
                new[info.comm_id] = info
        sizes = np.array([info.size for info in new.values()], np.int64)
        total = len(self.member_rank) + int(sizes.sum())
        if not new or total > MAX_MEMBERSHIPS:
            return
        for comm_id, info in new.items():
            self._comm_index[comm_id] = len(self.info)
            self.info.append(info)
        members = np.concatenate([_members_of(info) for info in new.values()])
        self.comm_at = self._columns["comm_at"].append(len(self.member_rank) + np.cumsum(sizes) - sizes)
        self.comm_size = self._columns["comm_size"].append(sizes)
        self.member_rank = self._columns["member_rank"].append(members)
        for name in (*_MEMBER_COLUMNS[1:], *_MEMBER_FLAGS):
            setattr(self, name, self._columns[name].append(len(members)))
        ids = np.sort(np.array(list(new), np.uint64))
        at = np.searchsorted(self._sorted_ids, ids)
        self._sorted_ids = np.insert(self._sorted_ids, at, ids)
        self._sorted_index = np.insert(self._sorted_index, at, [self._comm_index[i] for i in ids.tolist()])
        self.ranks.grow(int(members.max()) + 1)

    def was_observed(self, rank: int) -> bool:
        """Did an agent look at its process? A recording of operations alone knows none."""
        return self.recorded is None or bool(self.ranks.rows["state"][rank] != ProcessState.UNKNOWN)

    def comm_index(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Index of each communicator id, -1 unknown."""
        if not len(self._sorted_ids) or not len(ids):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted_ids, ids), len(self._sorted_ids) - 1)
        return np.where(self._sorted_ids[at] == ids, self._sorted_index[at], -1)

    def group_ranks(self, comm: NDArray[np.int64], rank: NDArray[Any]) -> NDArray[np.int64]:
        """Group ranks of ranks of the agent that was fed last, -1 where it did not tell."""
        keys, group_ranks = self._place
        key = comm << 32 | rank
        if not len(keys):
            return np.full(len(key), -1, np.int64)
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return np.where(keys[at] == key, group_ranks[at], -1)

    def members(self, comm: NDArray[np.int64], group_rank: NDArray[Any]) -> NDArray[np.int64]:
        """Global ranks of members, -1 where it is none or not known."""
        group_rank = group_rank.astype(np.int64)
        good = (group_rank >= 0) & (group_rank < self.comm_size[comm])
        return np.where(good, self.member_rank[self.comm_at[comm] + np.where(good, group_rank, 0)], -1)

    def _take_comms(self, batch: Batch, agent: int, now_s: float) -> None:
        rows = batch.comm_rows()
        comm = self.comm_index(rows["comm_id"])
        known = comm >= 0
        rows, comm = rows[known], comm[known]
        inside = rows["group_rank"] < self.comm_size[comm]
        inside &= (rows["rank"] >= 0) & (rows["rank"] < self.ranks.size)
        rows, comm = rows[inside], comm[inside]
        at = self.comm_at[comm] + rows["group_rank"]
        if (rows["done"] > self.member_done[at]).any():  # also where its record was lost
            self.last_completion_s = max(self.last_completion_s, now_s)
        self.member_rank[at] = rows["rank"]
        self.member_issued[at] = rows["issued"]
        self.member_done[at] = rows["done"]
        self.member_tid[at] = rows["last_tid"]
        self.member_seen[at] = True
        latest = np.argsort(rows["last_issue_ns"], kind="stable")
        self.ranks.issuing_tid[rows["rank"][latest]] = rows["last_tid"][latest]
        if len(rows):
            key = comm << 32 | rows["rank"]
            order = np.argsort(key)
            self._places[agent] = key[order], rows["group_rank"][order].astype(np.int64)
        self._place = self._places.get(agent, _NO_PLACE)

    def _host_s(self, rank: NDArray[Any], t_ns: NDArray[Any]) -> NDArray[np.float64]:
        return np.where(t_ns > 0, t_ns.astype(np.float64) / 1e9 + self.ranks.offset_s[rank], 0.0)

    def _known(self, told: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], NDArray[np.int64]]:
        comm = self.comm_index(told["comm"])
        good = (comm >= 0) & (told["rank"] >= 0) & (told["rank"] < self.ranks.size)
        return (told, comm) if good.all() else (told[good], comm[good])

    def _told_waits(self, batch: Batch) -> np.ndarray[Any, Any]:
        told, comm = self._known(batch.wait_rows())
        waits = np.zeros(len(told), WAITS)
        row = told["row"]
        for name in ("tid", "counter", "kind", "peer", "tag", "how", "dtype", "reduce_op", "count"):
            waits[name] = row[name]
        waits["rank"], waits["comm"] = told["rank"], comm
        waits["since_s"] = self._host_s(told["rank"], row["since_ns"])
        waits["issue_s"] = self._host_s(told["rank"], row["t_issue_ns"])
        waits["explicit"] = (told["inferred"] == 0) & (row["how"] != WaitHow.POLL)
        waits["timeout_s"] = row["timeout_ms"] / 1e3
        return waits

    def _told_remote(self, batch: Batch) -> np.ndarray[Any, Any]:
        told = batch.wait_rows()
        rank, row = told["rank"], told["row"]
        told = told[(row["kind"] == Kind.REMOTE_CALL) & (rank >= 0) & (rank < self.ranks.size)]
        rows = np.zeros(len(told), REMOTE)
        rows["rank"], rows["tid"], rows["peer"] = told["rank"], told["row"]["tid"], told["row"]["peer"]
        rows["peer"][(rows["peer"] < 0) | (rows["peer"] >= self.ranks.size)] = -1
        rows["since_s"] = self._host_s(told["rank"], told["row"]["since_ns"])
        self.last_call_s = max(self.last_call_s, float(rows["since_s"].max(initial=0.0)))
        return rows

    def _told_meetings(self, batch: Batch) -> np.ndarray[Any, Any]:
        told = batch.wait_rows()
        told = told[(told["row"]["kind"] == Kind.MEETING) & (told["rank"] >= 0) & (told["rank"] < self.ranks.size)]
        rows, row = np.zeros(len(told), MEETINGS), told["row"]
        rows["rank"], rows["first"], rows["stride"], rows["size"] = told["rank"], row["peer"], row["tag"], row["count"]
        rows["size"][(rows["size"] < 0) | (rows["size"] > self.ranks.size)] = 0
        last = rows["first"] + rows["stride"] * (rows["size"] - 1)
        rows["size"][(rows["first"] < 0) | (rows["stride"] < 1) | (last >= self.ranks.size)] = 0
        rows["since_s"] = self._host_s(told["rank"], row["since_ns"])
        return rows

    def _told_ops(self, told: np.ndarray[Any, Any], failed: bool = False) -> np.ndarray[Any, Any]:
        told, comm = self._known(told)
        ops = np.zeros(len(told), OPS)
        row = told["row"]
        for name in ("counter", "kind", "peer", "dtype", "reduce_op", "count", "flags", "ordinal"):
            ops[name] = row[name]
        if not failed:
            ops["tag"], ops["signature"], ops["tid"] = row["tag"], row["signature"], row["issue_tid"]
        ops["rank"], ops["comm"], ops["failed"] = told["rank"], comm, failed
        ops["issue_s"] = self._host_s(told["rank"], row["t_issue_ns"])
        return ops

    def _told_pairs(self, batch: Batch) -> np.ndarray[Any, Any]:
        rows = batch.pair_rows()
        comm = self.comm_index(rows["comm_id"])
        good = (comm >= 0) & (rows["rank"] >= 0) & (rows["rank"] < self.ranks.size)
        pairs = np.zeros(int(good.sum()), PAIRS)
        for name in ("rank", "kind", "peer", "tag", "issued", "completed"):
            pairs[name] = rows[name][good]
        pairs["comm"] = comm[good]
        return pairs

    def _take_splits(self, batch: Batch) -> None:
        """What the latest all-to-alls of some ranks send and expect: all that is known of them, told once."""
        told = batch.splits_rows()
        comm = self.comm_index(told["row"]["comm_id"])
        good = (comm >= 0) & (told["rank"] >= 0) & (told["rank"] < self.ranks.size) & (told["row"]["splits"] <= SPLITS)
        rows = np.zeros(int(good.sum()), SPLITS_OF)
        for name in ("counter", "splits", "count", "out_count", "split_in", "split_out"):
            rows[name] = told["row"][name][good]
        rows["rank"], rows["comm"] = told["rank"][good], comm[good]
        for rank in np.unique(rows["rank"]).tolist():
            self._splits[rank] = rows[rows["rank"] == rank]

    def _told_records(self, batch: Batch) -> tuple[np.ndarray[Any, Any], NDArray[np.int64]]:
        rows = batch.record_rows()
        is_step = rows["row"]["kind"] == Kind.STEP
        if is_step.any():
            known = is_step & (rows["rank"] >= 0) & (rows["rank"] < self.ranks.size)
            self._steps, rows = rows[known], rows[~is_step]
        told, comm = self._known(rows)
        failed = told[told["row"]["status"] == Status.FAILED]
        for rank in np.unique(failed["rank"]).tolist():
            rows = self._told_ops(failed[failed["rank"] == rank], failed=True)
            before = self.failed_ops.get(rank)
            self.failed_ops[rank] = rows if before is None else np.concatenate((before, rows))[-64:]
            ends_ns = failed["row"]["t_end_ns"][failed["rank"] == rank].tolist()
            self._failed_ns[rank] = (self._failed_ns.get(rank, []) + ends_ns)[-64:]
        if len(told):
            ends = self._host_s(told["rank"], told["row"]["t_end_ns"])
            done = told["row"]["status"] == Status.DONE
            issued = self._host_s(told["rank"], told["row"]["t_issue_ns"])
            delay_s = batch.delay_bound_ns / 1e9 if batch.delay_bound_ns >= 0 else UNKNOWN_DELAY_S
            np.maximum.at(self.ranks.went_on_s, told["rank"][done], issued[done] - delay_s)
            self.long_ops.add(told["rank"][done], issued[done], ends[done])
            self.last_completion_s = max(self.last_completion_s, float(ends[done].max(initial=0.0)))
            key = comm * 64 + told["row"]["kind"]
            for value, n in zip(*np.unique(key, return_counts=True), strict=True):
                kinds = self.kinds.setdefault(int(value) // 64, {})
                kinds[int(value) % 64] = kinds.get(int(value) % 64, 0) + int(n)
        return told, comm

    def _take_end_signal(self, event: Event, batch: Batch, now_s: float) -> None:
        """At the earliest time that it can have been: its consequences on other nodes may have travelled faster."""
        delay_s = batch.delay_bound_ns / 1e9 if batch.delay_bound_ns >= 0 else MOST_DELAY_S
        at_s = now_s - (batch.sent_ns - event.at_ns) / 1e9 - min(delay_s, MOST_DELAY_S)
        interruption = self.interruption if event.kind == "signal" else self.passed_on
        interruption.take(batch.node or batch.host, event.at_ns, at_s, event.text)

    def _take_event(self, event: Event) -> None:
        if not 0 <= event.rank < self.ranks.size or event.pid != self.ranks.rows["pid"][event.rank]:
            return  # of the node, or of a process that was replaced
        if event.kind == "exit":
            self.exits[event.rank] = event
        elif event.kind == "asked":
            if self._asked.get(event.rank, (-1, 0))[0] != event.pid:
                self._asked[event.rank] = event.pid, event.at_ns
        elif event.kind == "launched":
            self._ancestors[event.rank] = event.pid, [int(pid) for pid in event.text.split() if pid.isdigit()]
        elif event.kind == "stacks":
            self.stacks[event.rank] = (event.at_ns / 1e9, event.stacks, event.text)
        elif event.kind == "profile":
            self.profiles[event.rank] = (event.at_ns, event.stacks)

    # ---- looking ---------------------------------------------------------------------------------------------------

    def dealt_with_failure(self, ranks: list[int]) -> bool:
        """Has one of these gone on after an operation of its own had failed?"""
        failure_s = self._host_s(np.array(ranks, np.int64), self.ranks.rows["first_failure_ns"][ranks])
        return bool(((failure_s > 0) & (self.ranks.went_on_s[ranks] > failure_s)).any())

    def told_ops_of(self, agent: str) -> np.ndarray[Any, Any]:
        """Operations in flight on one agent's node, rows of OPS."""
        return self._ops.get(self.agent_number(agent), np.zeros(0, OPS))

    def agent_number(self, agent: str) -> int:
        """The number that an agent's ranks carry, -1 unknown."""
        return self._agents.get(agent, -1)

    def frontier(self, comm: int, rank: int) -> tuple[int, int]:
        """Operations that a rank has issued and completed on a communicator, as told last."""
        at, size = int(self.comm_at[comm]), int(self.comm_size[comm])
        member = at + np.flatnonzero(self.member_rank[at : at + size] == rank)[:1]
        return int(self.member_issued[member].sum()), int(self.member_done[member].sum())

    def comm_name(self, comm: int) -> str:
        """The communicator in words: its description, else its name."""
        info = self.info[comm]
        label = info.desc if info.desc not in ("", "undefined") else f"group {info.name}"
        return label.removeprefix("mesh_")

    def ordinal(self, rank: int) -> int:
        """Operations that a rank has issued in all, as told last."""
        return int(self.ranks.rows["ordinal"][rank]) if rank < self.ranks.size else 0

    def agents_heard_s(self, now_s: float) -> float:
        """Seconds since any agent spoke."""
        return now_s - max(self._heard_s) if self._heard_s else 0.0

    def get_over(self, ranks: list[int], until_s: float) -> None:
        """The job goes on without these, or although they failed until then: that is no news any more."""
        for rank in ranks:
            until_ns = int((until_s - float(self.ranks.offset_s[rank])) * 1e9)
            self._got_over[rank] = self.ranks.rows[rank].copy(), until_ns
        for rank, ops in self.failed_ops.items():
            self.failed_ops[rank] = ops[ops["issue_s"] > until_s]

    def open_ends(self) -> Ends:
        """How ranks ended or failed, but for what the job has got over."""
        ends, rows = self.ends(), self.ranks.rows
        if not self._got_over:
            return ends
        ended, failed, raised = (np.zeros(self.ranks.size, np.bool_) for _ in range(3))
        again_s = np.zeros(self.ranks.size)
        for rank, (then, until_ns) in self._got_over.items():
            ended[rank] = then["ended_ns"] and then["ended_ns"] == rows["ended_ns"][rank]
            raised[rank] = then["exception_ns"] and then["exception_ns"] == rows["exception_ns"][rank]
            failed[rank] = then["first_failure_ns"] > 0
            # The ring holds only the first failure of all: the first since then is told by its record.
            again_ns = min((ns for ns in self._failed_ns.get(rank, ()) if ns > until_ns), default=0)
            again_s[rank] = again_ns / 1e9 + self.ranks.offset_s[rank] if again_ns else 0.0
        return ends.but_for(ended, raised, failed, again_s)

    def ends(self) -> Ends:
        """How ranks ended, as far as they did, and not because somebody ends the job now."""
        return self.interruption.without_consequences(self.all_ends())

    def all_ends(self) -> Ends:
        """How ranks ended, as far as they did, for whatever cause."""
        r = self.ranks
        every = np.arange(r.size)
        status = np.where(r.present, r.rows["exit_status"], -1).astype(np.int64)
        for rank, event in self.exits.items():
            status[rank] = event.status if event.status >= 0 else status[rank]
        in_order = (status < 0) & (r.rows["closed_ns"] > 0) & (r.rows["exception_ns"] == 0)
        gone = self._has_ended() & r.present
        # Whoever ends well has caught what it had raised.
        raised = ~(gone & (status == 0)) & (r.rows["exception_ns"] > 0)
        return Ends(
            gone=gone,
            ended_s=self._host_s(every, r.rows["ended_ns"]),
            status=np.where(in_order, 0, status),
            failure_s=self._host_s(every, r.rows["first_failure_ns"]),
            failure=_texts(r.rows["failure"]),
            exception_s=np.where(raised, self._host_s(every, r.rows["exception_ns"]), 0.0),
            exception=_texts(np.where(raised, r.rows["exception"], b"")),
            closed_s=self._host_s(every, r.rows["closed_ns"]),
            node=r.agent,
            asked_s=self._asked_s(),
        )

    def _asked_s(self) -> Floats:
        """When a process of the job asked each rank to end; 0 if none did, or if it has trained on since."""
        pids, asked_s = self.ranks.rows["pid"], np.zeros(self.ranks.size)
        for rank, (pid, at_ns) in self._asked.items():
            if pid == pids[rank]:
                asked_s[rank] = at_ns / 1e9 + float(self.ranks.offset_s[rank])
        return np.where(self.ranks.went_on_s > asked_s + GRACE_S, 0.0, asked_s)

    def launched_by(self) -> NDArray[np.int64]:
        """For each rank the rank whose process started its process, itself or through others; -1 where none did."""
        found = np.full(self.ranks.size, -1, np.int64)
        pids = self.ranks.rows["pid"]
        at = {(int(self.ranks.agent[r]), int(pids[r])): int(r) for r in np.flatnonzero(self.ranks.present)}
        for rank, (pid, ancestors) in self._ancestors.items():
            if pid == pids[rank]:
                agent = int(self.ranks.agent[rank])
                found[rank] = next((at[agent, one] for one in ancestors if (agent, one) in at), -1)
        return found

    def _has_ended(self) -> Bools:
        rows = self.ranks.rows
        state = rows["state"]
        return np.asarray((state == ProcessState.GONE) | (state == ProcessState.ZOMBIE) | (rows["ended_ns"] > 0))

    def picture(self, now_s: float) -> Picture:
        """The job as it is known now."""
        r = self.ranks
        gone = self._has_ended() | (r.rows["closed_ns"] > 0)
        heard_s = np.array([*self._heard_s, -np.inf])[r.agent]
        return Picture(
            now_s=now_s,
            present=r.present.copy(),
            fresh=now_s - np.where(r.rows["ended_ns"] > 0, heard_s, r.read_s) <= FRESH_S,
            read_s=r.read_s.copy(),
            read_after_s=r.read_after_s.copy(),
            main_tid=r.rows["pid"].astype(np.int64),
            stopped=(r.stopped_looks >= 2) & ~gone,
            gone=gone & r.present,
            busy=r.rows["busy"] > 0,
            waits=self._own(WAITS, self._waits),
            ops=np.concatenate([self._own(OPS, self._ops), *self.failed_ops.values()])
            if self.failed_ops
            else self._own(OPS, self._ops),
            pairs=self._own(PAIRS, self._pairs),
            splits=np.concatenate(list(self._splits.values())) if self._splits else np.zeros(0, SPLITS_OF),
            comm_at=self.comm_at,
            comm_size=self.comm_size,
            member_rank=self.member_rank.copy(),
            member_issued=self.member_issued.copy(),
            member_done=self.member_done.copy(),
            member_tid=self.member_tid.copy(),
            member_seen=self.member_seen.copy(),
            recorded=self.recorded,
            remote=self._own(REMOTE, self._remote),
            meetings=self._own(MEETINGS, self._meetings),
            issuing_tid=r.issuing_tid.copy(),
        )

    def _own(self, dtype: np.dtype[Any], told: dict[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Rows of all agents, but none of a rank that another agent tells by now: what an agent said before it died."""
        # By bytes: `np.concatenate` compares the fields of every part first, which takes longer than all the rest.
        rows = np.frombuffer(b"".join([part.tobytes() for part in told.values()]), dtype)
        agent = np.repeat(list(told), [len(part) for part in told.values()]) if told else np.zeros(0, np.int64)
        own: np.ndarray[Any, Any] = rows[self.ranks.agent[rows["rank"]] == agent]
        return own


def _members_of(info: CommInfo) -> NDArray[np.int64]:
    """Global ranks by group rank, -1 where it is not known or none that can be."""
    members = np.full(info.size, -1, np.int64)
    try:
        listed = np.array(info.members[: info.size], np.int64)
    except OverflowError:
        return members
    members[: len(listed)] = np.where((listed >= 0) & (listed < MAX_WORLD), listed, -1)
    return members


def _texts(column: NDArray[Any]) -> tuple[str, ...]:
    """A column of texts; most are empty."""
    texts = [""] * len(column)
    for at in np.flatnonzero(column != b"").tolist():
        texts[at] = column[at].decode(errors="replace")
    return tuple(texts)


def _differs(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Bools:
    """Are these rows of RANK_ROW of two processes? Pids of pods are alike."""
    return np.asarray((one["pid"] != other["pid"]) | (one["created_ns"] != other["created_ns"]))
