"""Completed rounds whose members issued what could not meet, and completed all the same, with wrong numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import T0, Node, S, comm_info, records

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.hang.wrong_data import lasting_skew
from whichrank.locate.signatures import Skew
from whichrank.model.clause import Says
from whichrank.model.incident import Cause, Incident
from whichrank.model.kinds import Kind
from whichrank.model.sequence import Edit
from whichrank.store.rounds import MOST_ROUNDS

NOW_S = T0 / S
MEMBERS = [0, 1, 2, 3]


class Job:
    """Two nodes of two ranks on one communicator."""

    def __init__(self, members: list[int] = MEMBERS) -> None:
        tp = comm_info(7, members)
        self.nodes = [Node("a:1", [0, 1], 4).comm(tp), Node("b:1", [2, 3], 4).comm(tp)]
        self.analyzer = Analyzer(AnalyzerConfig(), "job", 0.0)
        self.now_s = NOW_S

    def restarts(self, pid: int) -> None:
        """All processes are other ones, from ten seconds after the beginning on."""
        for node in self.nodes:
            for rank in node.ranks:
                node.row[rank] = {"pid": pid + rank, "restart_count": 1, "created_ns": T0 + 10 * S}

    def reports(
        self, first: int, count: int, odd: dict[int, dict[str, Any]] | None = None, node: int | None = None, **row: int
    ) -> None:
        """All ranks (or those of one node) complete rounds; `odd` says what some issued instead in the last of them."""
        self.now_s += 0.5
        for number, reported in enumerate(self.nodes):
            if node is not None and number != node:
                continue
            parts = []
            for rank in reported.ranks:
                rows = records(rank, 7, first, count, **row)
                for name, value in (odd or {}).get(rank, {}).items():
                    rows["row"][name][-1] = value
                parts.append(rows)
                reported.did(rank, 7, first + count - 1)
            self.analyzer.feed(reported.batch(self.now_s - NOW_S, np.concatenate(parts)), self.now_s)

    def said(self, after_s: float = 1.0) -> list[Incident]:
        return [i for n in range(3) for i in self.analyzer.tick(self.now_s + after_s + n / 10) if i.kind == "failed"]


def test_equal_rounds_say_nothing() -> None:
    job = Job()
    for first in range(1, 2000, 100):
        job.reports(first, 100)
    assert not job.said()


@pytest.mark.parametrize("odd", [{"reduce_op": 4}, {"dtype": 3}, {"count": 77}, {"kind": 4}])
def test_the_odd_one_of_four_is_named_though_the_round_completed(odd: dict[str, int]) -> None:
    # GIVEN rank 2 took the maximum where the others summed (or the like)
    job = Job()
    job.reports(1, 50)
    job.reports(51, 10, {2: odd})
    # THEN it is named after a moment, with what was issued
    assert not job.said(after_s=0.3)
    (incident,) = job.said()
    assert incident.cause == Cause.INCONSISTENT
    assert [c.rank for c in incident.culprits] == [2]
    assert incident.op is not None
    assert incident.op.trace_id == "0000000000000007-60"
    assert len(incident.evidence) == 4


def test_what_earlier_processes_did_is_not_compared() -> None:
    # GIVEN a job that was started again, and whose last round is another operation than that round was before
    job = Job()
    job.reports(1, 60)
    job.restarts(pid=500)
    again = {"t_issue_ns": T0 + 20 * S}
    job.reports(1, 39, **again)
    job.reports(1, 60)  # what came late
    job.reports(40, 1, **again, kind=int(Kind.BARRIER), node=0)
    # THEN nothing is said while the other node has not reported it
    assert not job.said()
    assert not job.analyzer.finish(job.now_s + 5.0)


def test_agents_that_are_far_apart_are_compared_as_far_as_they_overlap() -> None:
    # GIVEN the second node's records come a hundred rounds later
    job = Job()
    job.reports(1, 100, node=0)
    job.reports(1, 50, node=1)
    job.reports(51, 20, {3: {"reduce_op": 4}}, node=1)
    (incident,) = job.said()
    assert [c.rank for c in incident.culprits] == [3]


def test_rounds_that_newer_ones_have_replaced_are_not_compared() -> None:
    # GIVEN the first node is ten thousand rounds ahead
    job = Job()
    job.reports(1, 10_000, node=0)
    job.reports(1, 50, {3: {"reduce_op": 4}}, node=1)
    assert not job.said()


@pytest.mark.parametrize("rounds_each", [300, 3000, 9000])
def test_one_odd_round_is_found_however_many_come_at_once(rounds_each: int) -> None:
    # GIVEN agents that report many rounds at once, and a rank that issued another operation in one of the first
    job = Job()
    job.reports(1, 20)
    job.now_s += 0.5
    for reported in job.nodes:
        parts = [records(rank, 7, 21, rounds_each) for rank in reported.ranks]
        if 1 in reported.ranks:
            parts[1]["row"]["reduce_op"][3] = 4
        for rank in reported.ranks:
            reported.did(rank, 7, 20 + rounds_each)
        job.analyzer.feed_all([reported.batch(job.now_s - NOW_S, np.concatenate(parts))], job.now_s)
    # THEN all agents are asked to report, and it is named, as far back as rounds are kept
    assert job.analyzer.pace.closely
    said = job.said()
    if rounds_each <= MOST_ROUNDS:
        assert [(i.cause, [c.rank for c in i.culprits]) for i in said] == [(Cause.INCONSISTENT, [1])]
    else:
        assert not [c.rank for i in said for c in i.culprits if c.rank != 1]
    assert not job.analyzer.pace.closely


def test_a_late_round_is_not_held_against_the_one_that_takes_its_place() -> None:
    # GIVEN a node that is as many rounds ahead as are kept, and batches of both that come at once
    job = Job()
    job.reports(1, MOST_ROUNDS, node=0)
    parts = [
        reported.batch(1.0, np.concatenate([records(rank, 7, first, 99) for rank in reported.ranks]))
        for reported, first in zip(job.nodes, (MOST_ROUNDS + 1, 1), strict=True)
    ]
    job.analyzer.feed_all(parts, job.now_s)
    # THEN nobody is suspected, and what really contradicts later is found
    assert not job.analyzer.pace.closely
    assert not job.said()
    job.reports(100, MOST_ROUNDS + 100, node=1)
    job.reports(MOST_ROUNDS + 100, 100, {0: {"reduce_op": 4}}, node=0)
    (incident,) = job.said()
    assert [c.rank for c in incident.culprits] == [0]


def test_an_agent_that_is_started_anew_and_reports_again_counts_once() -> None:
    # GIVEN two of five ranks on a node whose agent is started anew, and reads their rings from the beginning
    members = [0, 1, 2, 3, 4]
    comm, analyzer = comm_info(7, members), Analyzer(AnalyzerConfig(), "job", 0.0)
    for at_s, agent, ranks in ((0.0, "a:1", [0, 1]), (0.1, "a:2", [0, 1]), (0.2, "b:1", [2, 3, 4])):
        node, odd = Node(agent, ranks, 5).comm(comm), {"reduce_op": 4} if 0 in ranks else {}
        for rank in ranks:
            node.did(rank, 7, 1)
        analyzer.feed(node.batch(at_s, np.concatenate([records(rank, 7, 1, 1, **odd) for rank in ranks])), NOW_S + at_s)
    # THEN these two are the minority
    said = [i for tick in range(30) for i in analyzer.tick(NOW_S + 0.2 + tick / 10) if i.kind == "failed"]
    assert [[c.rank for c in i.culprits] for i in said] == [[0, 1]]
    assert list(said[0].victims.ranks) == [2, 3, 4]


def test_two_without_a_past_are_candidates() -> None:
    job = Job([0, 2])
    for node in job.nodes:
        node.issued = {(r, c): n for (r, c), n in node.issued.items() if r in (0, 2)}
        node.ranks = [r for r in node.ranks if r in (0, 2)]
    job.reports(1, 1, {2: {"reduce_op": 4}})
    (incident,) = job.said()
    assert incident.cause == Cause.UNKNOWN
    assert not incident.culprits
    assert {c.rank for c in incident.candidates} == {0, 2}


def test_a_communicator_is_reported_once() -> None:
    job = Job()
    job.reports(1, 50)
    job.reports(51, 10, {2: {"reduce_op": 4}})
    assert len(job.said()) == 1
    job.reports(61, 10, {2: {"reduce_op": 4}})
    assert not job.said()


def test_records_that_come_twice_or_late_do_no_harm() -> None:
    job = Job()
    job.reports(1, 100)
    job.reports(41, 60)
    job.reports(90, 20)
    assert not job.said()


def test_shapes_that_never_end_hold_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from whichrank.store import rounds

    monkeypatch.setattr(rounds, "MOST_SIGNATURES", 100)
    job = Job()
    for first in range(1, 400):
        job.reports(first, 1, {r: {"count": 1000 + first} for r in MEMBERS})
    assert len(job.analyzer.store.rounds._said) <= 101
    assert not job.said()


def test_members_that_are_no_longer_at_the_same_operation_are_worth_a_snapshot() -> None:
    # GIVEN members that have been at the same operation in each round
    job = Job()
    job.reports(1, 50)
    assert not job.analyzer.store.rounds.take_apart()
    watched: list[int] = []
    job.analyzer.case.peers.watch = lambda comms, now_s: watched.extend(comms)  # type: ignore[method-assign]
    job.reports(51, 50)
    assert not watched
    # WHEN one of them has issued an operation fewer elsewhere
    for first in (101, 151):
        job.reports(first, 50, odd={2: {"ordinal": first + 48}})
    # THEN its communicator is watched
    assert set(watched) == {0}


def test_what_was_reported_of_data_is_over_when_the_job_is() -> None:
    # GIVEN a contradiction among completed rounds
    job = Job()
    job.reports(1, 50)
    job.reports(51, 50, odd={2: {"reduce_op": 4}})
    (incident,) = job.said()
    assert incident.status == "open"
    # WHEN the job ends THEN so does the incident
    (last,) = job.analyzer.finish(job.now_s + 5.0)
    assert (last.id, last.status, last.culprits) == (incident.id, "final", incident.culprits)
    assert last.ended is not None


@pytest.mark.parametrize(("missing", "extra", "did"), [(1, 0, "left out"), (0, 1, "repeated"), (0, 2, "added")])
def test_what_was_never_usual_is_no_repetition(missing: int, extra: int, did: str) -> None:
    # GIVEN a rank whose operations are alike, but for a last one
    job = Job()
    job.reports(1, 50, odd={2: {"kind": 4}})
    a = job.analyzer
    usual, strange = a.store.sequences.sequence(2).tokens[-2:].tolist()
    edit = Edit(50, (usual,) * missing, ((), (usual,), (strange,))[extra], 1)
    # WHEN it is reported that there was one too few or too many of either
    picture = a.store.picture(job.now_s)
    found = lasting_skew(a.case, picture, Skew(2, a.store.sequences.key_of(0), edit, 3))
    (why,) = found.culprits[0].why
    assert (why.says, why.values["did"], why.values["group"]) == (Says.SKEWED, did, "tp")


def test_the_iteration_is_that_in_which_it_happened_not_that_in_which_it_was_seen() -> None:
    # GIVEN iterations of ten operations, each closed by an optimizer step, and an odd operation in the fourth
    job = Job()
    job.reports(1, 35, odd={2: {"reduce_op": 4}})
    for reported in job.nodes:
        parts = []
        for rank in reported.ranks:
            steps = records(rank, 0, 1, 6, kind=Kind.STEP)
            steps["row"]["ordinal"] = 10 * steps["row"]["counter"]
            parts += [records(rank, 7, 36, 30), steps]
            reported.did(rank, 7, 65)
        job.analyzer.feed(reported.batch(1.0, np.concatenate(parts)), job.now_s + 0.5)

    # THEN the fourth is reported, though the ranks are in the seventh by now
    (word,) = job.said()[:1]
    assert word.stage is not None
    assert word.stage.iteration == 3
    assert job.analyzer.store.iteration_of(2) == 6
    # AND since the end of that operation, not since it was found
    assert word.onset == job.analyzer.ledger.utc(NOW_S + 1.0)
    assert word.detected > word.onset


def test_a_skew_is_reported_since_its_iteration_began() -> None:
    # GIVEN iterations of ten operations, a second each
    job = Job()
    job.reports(1, 35)
    steps = records(2, 0, 1, 4, kind=Kind.STEP)
    steps["row"]["ordinal"] = 10 * steps["row"]["counter"]
    steps["row"]["t_issue_ns"] = T0 + S * np.arange(1, 5)
    job.analyzer.feed(job.nodes[1].batch(1.0, steps), job.now_s + 0.5)
    a, picture = job.analyzer, job.analyzer.store.picture(job.now_s + 5)
    token = a.store.sequences.sequence(2).tokens[-1]

    def since_s(ordinal: int) -> float:
        skew = Skew(2, a.store.sequences.key_of(0), Edit(ordinal, (token,), (), 10), 3)
        return lasting_skew(a.case, picture, skew).onset_s - NOW_S

    # THEN one in the fourth has the time of the step before it; of the first no beginning is known
    assert since_s(35) == pytest.approx(3.0)
    assert since_s(5) == pytest.approx(picture.now_s - NOW_S)
