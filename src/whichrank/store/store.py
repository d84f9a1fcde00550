"""The only place that takes batches: everything that was received of a job, once, as columns.

An agent says the whole state of its node each time, so a batch replaces what the agent said before; records and events
are reported once. Times are turned from each host's own monotonic clock into the analyzer's by their age when they were
read; a batch that was `delay_bound` under way may be that much older, and the store says so (`read_after_s`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.columns.records import runs_of
from whichrank.detect.usual import UsualWaits
from whichrank.model.codes import Status
from whichrank.model.picture import MEETINGS, OPS, PAIRS, REMOTE, SPLITS_OF, WAITS, Bools, Picture, Recorded
from whichrank.model.places import joined, put, those
from whichrank.model.signature import Columns
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_REPORTED,
    PAIR_ROW,
    RANK_ROW,
    RATE_ROW,
    RECORD_REPORTED,
    SPLITS_REPORTED,
    WAIT_REPORTED,
    Batch,
    Event,
    ProcessState,
    Stack,
)
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed, no_operations
from whichrank.store.current import Current
from whichrank.store.departures import Departures
from whichrank.store.failures import Failures
from whichrank.store.growing import Growing
from whichrank.store.long_ops import LONG_S, LongOps
from whichrank.store.merged import Merged, groups, is_portion, with_portions
from whichrank.store.op_kinds import OpKinds
from whichrank.store.op_rates import OpRates
from whichrank.store.passes import Passes
from whichrank.store.paths import Paths
from whichrank.store.rank_columns import MAX_WORLD, RankColumns, are_over
from whichrank.store.reported import Reported
from whichrank.store.rounds import Rounds
from whichrank.store.sequences import Issued, Sequences

MOST_DELAY_S = 1.0
"""Of a signal that asks the job to end: a bound above this is of a network that stood still, and says nothing."""
FRESH_S = 3.0
"""What was read longer ago than this is no news: its agent is silent."""
RANKS_ASKED = 256
"""For what all ranks share, such as the length of an iteration, some are enough."""
_NO_RECORDS = np.zeros(0, RECORD_REPORTED)

Rows = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Fed:
    """What was new in a batch, for those who measure as it comes.

    Attributes:
        done: Completed operations of processes that live.
        steps: Optimizer steps, or what iterations of ranks that make none begin with, rows of RECORD_REPORTED.
        given: What ranks were given to compute, rows of RECORD_REPORTED.
        passes: Backward passes that begin or are over, rows of RECORD_REPORTED.
        states: Of ranks, rows of RANK_ROW; no rank twice.
        restarted: Ranks whose process was replaced by another.
        only_completed: It had nothing but operations and steps, and none has failed.
        begins_anew: Iterations begin with something else than before: they are measured anew.
    """

    done: Completed
    steps: np.ndarray[Any, Any]
    given: np.ndarray[Any, Any]
    passes: np.ndarray[Any, Any]
    states: np.ndarray[Any, Any]
    restarted: frozenset[int] = frozenset()
    only_completed: bool = False
    begins_anew: bool = False


_NOTHING = Fed(no_operations(), _NO_RECORDS, _NO_RECORDS, _NO_RECORDS, np.zeros(0, RANK_ROW))


class Store:
    """What is known of one job. What each part keeps at most is stated in its own head.

    Attributes:
        recorded: What is known of a recording; None of a live job.
        ranks: What was read of each rank and its process last.
        comms: Communicators, and how far each member is.
        sequences: Which operations each rank has issued, and its iterations.
        rounds: Which operations members had issued in rounds that are complete.
        usual_waits: How long waits usually are on each communicator.
        long_ops: Operations that took long.
        departures: Ranks that have ended, and how.
        paths: Connections and probes.
        host: Of each rank.
        job: The job that the agent of each rank says that it watches.
        stacks: Of ranks that were asked: when they were sampled, the stacks, and why there are none.
        profiles: Samples of the main thread of ranks that were asked.
        kinds: How many operations of each kind a communicator has completed.
        passes: How far each rank is in its iteration.
    """

    def __init__(self) -> None:
        self.recorded: Recorded | None = None
        self.ranks = RankColumns()
        self.comms = Communicators()
        self.host: dict[int, str] = {}
        self.job: dict[int, str] = {}
        self.sequences = Sequences()
        self.rounds = Rounds()
        self.usual_waits = UsualWaits()
        self._op_rates = OpRates()
        self._reported = Reported(self.ranks, self.comms)
        self._waits, self._remote, self._meetings = Current(WAITS), Current(REMOTE), Current(MEETINGS)
        self._ops, self._pairs = Current(OPS), Current(PAIRS)
        self._splits: dict[int, np.ndarray[Any, Any]] = {}
        self._agents: dict[str, int] = {}
        self._sequence: list[int] = []
        self._restarted: set[int] = set()
        self._heard_s = Growing(np.float64)
        self._well_s = Growing(np.float64)  # when each agent said last that all is well, without states
        self._failures = Failures()
        self.departures = Departures(self.ranks, self._failures)
        self.long_ops = LongOps()
        self.paths = Paths()
        self.stacks: dict[int, tuple[float, list[Stack], str]] = {}
        self.profiles: dict[int, tuple[int, list[Stack]]] = {}
        self.kinds = OpKinds()
        self.passes = Passes(self.comms)
        self.last_completion_s = 0.0
        self.last_call_s = 0.0  # when the latest wait for a remote call began
        self.first_seen_s = 0.0
        self.last_computed_s = 0.0  # when any rank was seen to compute

    # ---- feeding ---------------------------------------------------------------------------------------------------

    def feed(self, batch: Batch, now_s: float) -> Fed:
        """Take a batch. One that came before is ignored."""
        return next(self.feed_all([batch], now_s), _NOTHING)

    def feed_all(self, batches: Sequence[Batch], now_s: float) -> Iterator[Fed]:
        """Take batches that have come at one time, as few by themselves as can be; each is taken when it is asked for.

        Those of different agents are taken as one, which takes little longer than the largest of them. Where two report
        the same rank, each is taken by itself: the later one counts.
        """
        for batch in batches:
            if batch.is_well:
                self._note_well(batch, now_s)
        new = [batch for batch in batches if not batch.is_well and self._is_new(batch, now_s)]
        for together in groups(with_portions(new)):
            in_order = sorted(together, key=_lowest_rank)  # neighbours in memory are then taken one after the other
            merged = Merged(in_order, [self._agents[batch.agent] for batch in in_order])
            if not merged.has_rank_twice:
                yield self._take(merged, now_s)
                continue
            for batch in together:
                yield self._take(Merged([batch], [self._agents[batch.agent]]), now_s)

    def _is_new(self, batch: Batch, now_s: float) -> bool:
        """Whether it has not come before; its agent gets a number."""
        agent = self._agents.setdefault(batch.agent, len(self._agents))
        if agent == len(self._heard_s.rows):
            self._heard_s.append(1)
            self._heard_s.rows[agent] = now_s
            self._well_s.append(1)
            self._well_s.rows[agent] = -np.inf
            self._sequence.append(-1)
        if batch.sequence <= self._sequence[agent]:
            return False
        self._sequence[agent] = batch.sequence
        return True

    def _note_well(self, batch: Batch, now_s: float) -> None:
        """Of the ranks of this agent what was read before still holds as far as it matters."""
        agent = self._agents.get(batch.agent)
        if agent is not None:
            self._heard_s.rows[agent] = self._well_s.rows[agent] = now_s
            self.paths.note_heard(agent, now_s)

    def _take(self, merged: Merged, now_s: float) -> Fed:
        """Take what is new."""
        rows, of = merged.states, merged.batch_of("ranks", RANK_ROW)
        good = (rows["rank"] >= 0) & (rows["rank"] < MAX_WORLD)
        rows, of = those(rows, good), those(of, good)
        lossy = self._take_ranks(rows, of, merged, now_s)
        self.comms.leave(self._restarted)
        self.comms.add([info for batch in merged.batches for info in batch.comm_info], self.ranks)
        if self.comms.take(merged.rows("comms", COMM_ROW), self.ranks):  # also where its record was lost
            self.last_completion_s = max(self.last_completion_s, now_s)
        speaking = np.unique(of)  # a batch that is sent again carries no states
        flight = np.zeros(0, OPS)
        if len(rows):
            self._heard_s.rows[merged.agents[speaking]] = now_s
            self._take_rates(rows["rank"], merged.rows("rates", RATE_ROW))
            flight = self._take_what_is_now(merged, speaking)
        for batch, agent in zip(merged.batches, merged.agents.tolist(), strict=True):
            self.paths.take(batch, agent, now_s)
        done, steps, given, passes, have_failed = self._take_records(merged)
        for batch in merged.batches:
            for event in batch.events:
                if event.kind in ("signal", "asked"):
                    self._take_end_signal(event, batch, now_s)
                self._take_event(event)
        restarted, self._restarted = frozenset(self._restarted), set()
        for rank in restarted:
            self.sequences.forget(rank)
            self.passes.forget(rank)
        if restarted:
            self.rounds.forget()
        # What an earlier process of the rank did may come late.
        done = done.those(done["t_issue_ns"] > self.ranks.rows["created_ns"][done.rank])
        passes = those(passes, passes["row"]["t_issue_ns"] > self.ranks.rows["created_ns"][passes["rank"]])
        for rank in lossy:
            self.sequences.expect_loss(rank)
        self.sequences.add_comms(self.comms.info)
        self.sequences.marks.note_steps(steps["rank"])
        issued = [Issued(done.rank, done.comm, done)]
        if len(flight):
            issued.append(Issued(flight["rank"], flight["comm"], flight))
        tokens = self.sequences.feed_together(issued)[0]
        marks = self.sequences.beginnings(done, tokens, self.ranks)
        self.sequences.steps.feed(steps["rank"], steps["row"])
        self.passes.feed(passes, steps, done, flight)
        steps = joined((steps, marks), RECORD_REPORTED) if len(marks) else steps
        if len(done):
            self.rounds.feed(self.comms, done, self.ranks, now_s)
            self.usual_waits.add(done.comm, done["wait_us"])
        if len(rows):
            self._op_rates.feed(rows["rank"], rows["ordinal"], now_s)
        only_completed = not have_failed and all(map(is_portion, merged.batches))
        return Fed(done, steps, given, passes, rows, restarted, only_completed, self.sequences.marks.take_begun_anew())

    def _take_what_is_now(self, merged: Merged, speaking: NDArray[np.int64]) -> np.ndarray[Any, Any]:
        """What the ranks of agents do at this moment, instead of what they did before. Returns operations, as OPS."""
        waits, inflight = merged.rows("waits", WAIT_REPORTED), merged.rows("inflight", INFLIGHT_REPORTED)
        pairs = merged.rows("pairs", PAIR_ROW)
        agents = merged.agents[speaking]
        remote, ops = self._reported.remote_calls(waits), self._reported.ops(inflight)
        self.last_call_s = max(self.last_call_s, float(remote["since_s"].max(initial=0.0)))
        for current, reported in (
            (self._waits, self._reported.waits(waits)), (self._remote, remote),
            (self._meetings, self._reported.meetings(waits)), (self._ops, ops),
            (self._pairs, self._reported.pairs(pairs)),
        ):  # fmt: skip
            current.put(agents, reported, self.ranks.agent[reported["rank"]])
        splits = self._reported.splits(merged.rows("splits", SPLITS_REPORTED))
        for rank in np.unique(splits["rank"]).tolist():  # all that is known of them, reported once
            self._splits[rank] = splits[splits["rank"] == rank]
        return those(ops, np.isin(self.ranks.agent[ops["rank"]], agents))

    def forget_agent(self, agent: str) -> None:
        """Forget the ranks of an agent that turned out to watch another job; what is sent again later is ignored."""
        number = self._agents.get(agent, -1)
        for reported in (self._waits, self._remote, self._meetings, self._ops, self._pairs):
            reported.forget(number)
        self.paths.forget(number)
        ranks = np.flatnonzero(self.ranks.agent == number)
        self.ranks.rows[ranks], self.ranks.rates[ranks] = np.zeros(1, RANK_ROW), np.zeros(1, RATE_ROW)
        self.ranks.present[ranks], self.ranks.agent[ranks] = False, -1
        for rank in ranks.tolist():
            self._forget_process(rank)
            self.host.pop(rank, None)
            self.job.pop(rank, None)
        self.comms.forget(ranks)

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

    def _is_of_before(self, rows: np.ndarray[Any, Any], agent: NDArray[np.int64], now_s: float) -> Bools:
        """Which rows are of a dead process whose rank lives on another node by now, after an elastic restart."""
        ended = are_over(rows)
        if not ended.any():
            return ended
        known, reported_by = self.ranks.rows[rows["rank"]], self.ranks.agent[rows["rank"]]
        heard_s = self._agent_heard_s(reported_by)
        lives = self.ranks.present[rows["rank"]] & ~are_over(known) & (now_s - heard_s < FRESH_S)
        return np.asarray(ended & lives & (reported_by != agent) & _differs(known, rows))

    def _take_ranks(self, rows: np.ndarray[Any, Any], of: NDArray[np.int64], merged: Merged, now_s: float) -> list[int]:
        """Take the states of ranks, each of a batch. Returns those of which records were lost since the one before."""
        if not len(rows):
            return []
        columns = self.ranks
        world = int(min(rows["world_size"].max(initial=0), MAX_WORLD))
        columns.grow(max(int(rows["rank"].max()) + 1, world))
        self.sequences.expect(columns.size)
        is_of_now = ~self._is_of_before(rows, merged.agents[of], now_s)
        rows, of = those(rows, is_of_now), those(of, is_of_now)
        rank, agent = rows["rank"].astype(np.int64), merged.agents[of]
        if not self.first_seen_s:
            self.first_seen_s = now_s
        lossy: list[int] = rank[columns.rows["lost_records"][rank] < rows["lost_records"]].tolist()
        before = {name: columns.rows[name][rank] for name in ("pid", "created_ns", "read_ns", "cpu_ns")}
        another = columns.present[rank] & _differs(before, rows)
        for restarted in rank[another].tolist():
            self._forget_process(restarted)
        age = (merged.sent_ns[of] - rows["read_ns"].astype(np.int64)) / 1e9
        put(columns.rows, rank, rows)
        columns.present[rank] = True
        columns.read_s[rank] = now_s - age
        columns.read_after_s[rank] = now_s - age - merged.delay_s[of]
        columns.offset_s[rank] = now_s - merged.sent_ns[of] / 1e9
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
        moved = columns.agent[rank] != agent
        for r, at in zip(rank[moved].tolist(), of[moved].tolist(), strict=True):
            self.host[r], self.job[r] = merged.batches[at].host, merged.batches[at].job
        columns.agent[rank] = agent
        return lossy

    def _take_rates(self, ranks: NDArray[np.int32], rates: np.ndarray[Any, Any]) -> None:
        """The latest window of each rank; none of a rank of this batch that is not sampled."""
        put(self.ranks.rates, ranks, np.zeros(1, RATE_ROW))
        if len(rates):
            known = those(rates, np.isin(rates["rank"], ranks))
            put(self.ranks.rates, known["rank"], known)

    def was_observed(self, rank: int) -> bool:
        """Did an agent look at its process? A recording of operations alone knows none."""
        return self.recorded is None or bool(self.ranks.rows["state"][rank] != ProcessState.UNKNOWN)

    def _take_records(self, merged: Merged) -> tuple[Completed, Rows, Rows, Rows, bool]:
        """Take completed operations. Returns them, steps, what was given, backward passes, whether any has failed."""
        rows = merged.rows("records", RECORD_REPORTED)
        if not len(rows):
            return no_operations(), _NO_RECORDS, _NO_RECORDS, _NO_RECORDS, False
        done, steps, given, passes = self._reported.completed(rows)
        well = done.those(done["status"] == Status.DONE)
        if len(well) < len(done):
            failed = done.rows(np.flatnonzero(done["status"] == Status.FAILED))
            for rank in np.unique(failed["rank"]).tolist():
                of_rank = failed[failed["rank"] == rank]
                self._failures.add(rank, self._reported.ops(of_rank, failed=True), of_rank["row"]["t_end_ns"].tolist())
        if len(well):
            self._take_times(well, merged)
        self.kinds.add(done.comm, done["kind"])
        return done, steps, given, passes, len(well) < len(done)

    def _take_times(self, done: Completed, merged: Merged) -> None:
        """When operations were issued and completed."""
        issue_ns, end_ns = done["t_issue_ns"].view(np.int64), done["t_end_ns"].view(np.int64)
        starts, last_issue_ns, last_end_ns, long = runs_of(done.rank, issue_ns, end_ns, int(LONG_S * 1e9))
        ranks = done.rank[starts]
        delay_s = merged.delay_s[merged.batch_at("records", RECORD_REPORTED, done.places(starts))]
        np.maximum.at(self.ranks.went_on_s, ranks, self.ranks.host_s(ranks, last_issue_ns) - delay_s)
        self.last_completion_s = max(self.last_completion_s, float(self.ranks.host_s(ranks, last_end_ns).max()))
        if len(long):
            rank = done.rank[long]
            self.long_ops.add(rank, self.ranks.host_s(rank, issue_ns[long]), self.ranks.host_s(rank, end_ns[long]))

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

    # ---- reading ---------------------------------------------------------------------------------------------------

    def dealt_with_failure(self, ranks: list[int]) -> bool:
        """Has one of these gone on after an operation of its own had failed?"""
        failure_s = self.ranks.host_s(np.array(ranks, np.int64), self.ranks.rows["first_failure_ns"][ranks])
        return bool(((failure_s > 0) & (self.ranks.went_on_s[ranks] > failure_s)).any())

    def agent_number(self, agent: str) -> int:
        """The number that an agent's ranks carry, -1 unknown."""
        return self._agents.get(agent, -1)

    def agent_names(self) -> list[str]:
        """Of all agents, by their numbers."""
        return list(self._agents)

    def frontier(self, comm: int, rank: int) -> tuple[int, int]:
        """Operations that a rank has issued and completed on a communicator, as reported last."""
        return self.comms.frontier(comm, rank)

    def ordinal(self, rank: int) -> int:
        """Operations that a rank has issued in all, as reported last."""
        return int(self.ranks.rows["ordinal"][rank]) if rank < self.ranks.size else 0

    def iteration_of(self, rank: int) -> int | None:
        """The iteration that a rank is in, from 0; None while that is not known."""
        return self.sequences.iteration_of(rank)

    def iteration_s(self) -> float:
        """Seconds that an iteration takes, the median over some ranks; 0 while it is not known.

        By the optimizer's steps, else by where iterations begin; until that is known by the operations of a period and
        how many a rank issues in a second.
        """
        if by_steps := self.sequences.steps.iteration_s(RANKS_ASKED):
            return by_steps
        if by_marks := self.sequences.marks.iteration_s():
            return by_marks
        periods = ((self.sequences.period_of(rank), rate) for rank, rate in self._op_rates.known(RANKS_ASKED))
        known = [period / rate for period, rate in periods if period]
        return float(np.median(known)) if known else 0.0

    def agents_heard_s(self, now_s: float) -> float:
        """Seconds since any agent spoke."""
        return now_s - float(self._heard_s.rows.max()) if len(self._heard_s.rows) else 0.0

    def _agent_heard_s(self, agent: NDArray[np.int64]) -> NDArray[np.float64]:
        """When each of these agents spoke last; -inf where there is none."""
        return _of_agents(self._heard_s, agent)

    def spoke_s(self) -> NDArray[np.float64]:
        """By rank, when it was read last, or said to be well."""
        return np.maximum(self.ranks.read_s, _of_agents(self._well_s, self.ranks.agent))

    def picture(self, now_s: float) -> Picture:
        """The job as it is known now."""
        r = self.ranks
        gone = self.ranks.have_ended() | (r.rows["closed_ns"] > 0)
        heard_s = self._agent_heard_s(r.agent)
        return Picture(
            now_s=now_s,
            present=r.present.copy(),
            fresh=now_s - np.where(r.rows["ended_ns"] > 0, heard_s, self.spoke_s()) <= FRESH_S,
            read_s=r.read_s.copy(),
            read_after_s=r.read_after_s.copy(),
            main_tid=r.rows["pid"].astype(np.int64),
            stopped=(r.stopped_polls >= 2) & ~gone,
            gone=gone & r.present,
            busy=r.rows["busy"] > 0,
            waits=self._waits.all(r.agent),
            ops=np.concatenate([self._ops.all(r.agent), *self._failures.ops.values()])
            if self._failures.ops
            else self._ops.all(r.agent),
            pairs=self._pairs.all(r.agent),
            splits=np.concatenate(list(self._splits.values())) if self._splits else np.zeros(0, SPLITS_OF),
            comm_at=self.comms.at,
            comm_size=self.comms.size,
            member_rank=self.comms.member_rank.copy(),
            member_issued=self.comms.member_issued.copy(),
            member_done=self.comms.member_done.copy(),
            member_tid=self.comms.member_tid.copy(),
            member_seen=self.comms.member_seen.copy(),
            recorded=self.recorded,
            remote=self._remote.all(r.agent),
            meetings=self._meetings.all(r.agent),
            issuing_tid=r.issuing_tid.copy(),
        )


def _lowest_rank(batch: Batch) -> int:
    """The first rank of which it has something, 0 if there is none: agents give theirs in order."""
    return int.from_bytes((batch.ranks or batch.records)[: RANK_ROW["rank"].itemsize], "little")


def _of_agents(column: Growing, agent: NDArray[np.int64]) -> NDArray[np.float64]:
    """Its value for each of these agents; -inf where there is none."""
    known = agent >= 0
    return np.where(known, column.rows[np.where(known, agent, 0)], -np.inf)


def _differs(one: Columns, other: Columns) -> Bools:
    """Are these rows of RANK_ROW of two processes? Pids of pods are alike."""
    return np.asarray((one["pid"] != other["pid"]) | (one["created_ns"] != other["created_ns"]))
