"""The wait-for graph: each kind of edge of DESIGN 5.2 question 4, what is known, who is at the end."""

from __future__ import annotations

import time

import numpy as np
import pytest
from job_pictures import NOW_S, Job, main_tid

from whichrank.locate.waitgraph import WaitGraph, build, waiting_for
from whichrank.model.kinds import Kind

SYNCHRONISING = [Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.BARRIER, Kind.ALL_TO_ALL]


def graph_of(job: Job, min_age_s: float = 0.6) -> WaitGraph:
    return build(job.picture(), min_age_s)


def edges_of(graph: WaitGraph, job: Job) -> set[tuple[int, int]]:
    """(who waits, who is waited for)."""
    picture = job.picture()
    return {
        (int(w), int(target)) for target in set(graph.edges.target.tolist())
        for w in waiting_for_all(picture, graph, int(target))
    }  # fmt: skip


def waiting_for_all(picture: object, graph: WaitGraph, target: int) -> list[int]:
    from whichrank.locate.waitgraph import waiters_of

    return [int(r) for r in waiters_of(picture, graph, target)]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", SYNCHRONISING)
def test_a_synchronising_operation_waits_for_every_member_that_has_not_entered(kind: Kind) -> None:
    # GIVEN ranks 0 and 1 inside round 7 of four, ranks 2 and 3 still at 6
    job = Job(4, tp=range(4)).entered("tp", 6, 2, 3, done=6)
    job.waits(0, "tp", 7, kind=kind).waits(1, "tp", 7, kind=kind)
    # WHEN the graph is built
    graph = graph_of(job)
    # THEN both wait for both, who wait for nobody
    assert edges_of(graph, job) == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert graph.sinks.tolist() == [2, 3]
    assert graph.waiting.tolist() == [0, 1]
    assert not len(graph.cycle)
    assert not len(graph.stuck)


@pytest.mark.parametrize("kind", [Kind.BROADCAST, Kind.SCATTER])
def test_members_wait_for_a_late_root_only(kind: Kind) -> None:
    # GIVEN a rooted operation whose root (group rank 1, rank 5) is late, and another member too
    job = Job(8, dp=[4, 5, 6, 7])
    for rank in (4, 6):
        job.waits(rank, "dp", 3, kind=kind, peer=1)
    # THEN only the root is waited for
    assert edges_of(graph_of(job), job) == {(4, 5), (6, 5)}


@pytest.mark.parametrize("kind", [Kind.GATHER, Kind.REDUCE, Kind.BROADCAST])
def test_a_root_that_has_entered_waits_for_late_members(kind: Kind) -> None:
    # GIVEN a root inside, members 6 and 7 late
    job = Job(8, dp=[4, 5, 6, 7]).entered("dp", 3, 4)
    job.waits(5, "dp", 3, kind=kind, peer=1)
    # THEN it waits for those
    assert edges_of(graph_of(job), job) == {(5, 6), (5, 7)}


def test_a_monitored_barrier_waits_for_group_rank_0_first_and_it_for_all() -> None:
    # GIVEN group rank 0 (rank 6) late
    job = Job(8, ctrl=[6, 2, 4])
    job.waits(2, "ctrl", 1, kind=Kind.MONITORED_BARRIER)
    assert edges_of(graph_of(job), job) == {(2, 6)}
    # WHEN it has come THEN everybody who is late is waited for
    job.waits(6, "ctrl", 1, kind=Kind.MONITORED_BARRIER)
    assert graph_of(job).sinks.tolist() == [4]


def test_a_receive_waits_for_its_sender_by_counters_of_the_pair_and_tag() -> None:
    # GIVEN rank 1 waits for the third message of rank 0 with tag 9; two were sent, and five with another tag
    job = Job(2, pp=[0, 1]).waits(1, "pp", 3, kind=Kind.RECV, peer=0, tag=9)
    job.pair(0, "pp", Kind.SEND, 1, issued=2, tag=9).pair(0, "pp", Kind.SEND, 1, issued=5, tag=8)
    assert edges_of(graph_of(job), job) == {(1, 0)}
    # WHEN the third was sent THEN nobody keeps it: the operation is stuck in between
    job.pair(0, "pp", Kind.SEND, 1, issued=3, tag=9)
    graph = graph_of(job)
    assert not len(graph.edges.target)
    assert graph.stuck.tolist() == [0]


@pytest.mark.parametrize(("kind", "peer", "issued"), [(Kind.RECV, 0, 4), (Kind.RECV_ANY, -1, 1)])
def test_a_send_waits_for_a_receive_or_for_one_from_any_source(kind: Kind, peer: int, issued: int) -> None:
    # GIVEN rank 2 (group rank 0) in its fourth send to rank 9 (group rank 1)
    job = Job(10, pp=[2, 9]).waits(2, "pp", 4, kind=Kind.SEND, peer=1)
    assert edges_of(graph_of(job), job) == {(2, 9)}
    # WHEN the receiver has posted one that fits THEN it keeps nobody
    job.pair(9, "pp", kind, peer, issued=issued)
    assert not edges_of(graph_of(job), job)


def test_pairs_of_another_communicator_do_not_count() -> None:
    # GIVEN two communicators of the same ranks; the message was sent on the other one
    job = Job(2, pp=[0, 1], world=[0, 1]).waits(1, "pp", 1, kind=Kind.RECV, peer=0)
    job.pair(0, "world", Kind.SEND, 1, issued=1)
    assert graph_of(job).sinks.tolist() == [0]


def test_a_receive_from_any_source_names_nobody() -> None:
    # GIVEN a receive from any of three peers, none of which sends
    job = Job(4, pp=range(4)).waits(0, "pp", 1, kind=Kind.RECV_ANY)
    graph = graph_of(job)
    # THEN one of several would do: there are edges, but no end that could be blamed
    assert edges_of(graph, job) == {(0, 1), (0, 2), (0, 3)}
    assert graph.edges.either.all()
    assert not len(graph.sinks)
    assert not len(graph.cycle)


@pytest.mark.parametrize("state", ["stopped", "gone"])
def test_a_rank_that_is_halted_inside_an_operation_keeps_the_others(state: str) -> None:
    # GIVEN all have entered, and rank 2's process is stopped, or gone
    job = Job(3, tp=range(3)).waits(0, "tp", 5).waits(1, "tp", 5).waits(2, "tp", 5)
    getattr(job, state)[2] = True
    graph = graph_of(job)
    # THEN it is the end, and it is said that it had entered
    assert graph.sinks.tolist() == [2]
    assert waiting_for(job.picture(), graph, 2)["entered"]
    assert sorted(waiting_for(job.picture(), graph, 2)["waiters"]) == [0, 1]
    # AND its own wait is nobody's
    assert 2 not in graph.waiting


def test_a_rank_halted_inside_one_operation_and_missing_in_another_is_reported_by_the_one_that_it_entered() -> None:
    # GIVEN rank 3 stopped in a tp operation; its dp peer has waited for it for longer
    job = Job(4, tp=[2, 3], dp=[1, 3])
    job.waits(2, "tp", 8, for_s=5).waits(1, "dp", 3, for_s=6).entered("tp", 8, 3)
    job.stopped[3] = True
    graph = graph_of(job)
    # THEN what it entered says more
    facts = waiting_for(job.picture(), graph, 3)
    assert facts["entered"]
    assert int(facts["wait"]["comm"]) == 0
    assert sorted(facts["waiters"]) == [1, 2]


def test_one_that_completed_and_then_stopped_keeps_nobody_there() -> None:
    # GIVEN rank 1 completed round 5 (it left the broadcast early) and was then stopped; rank 2 is still inside
    job = Job(3, tp=range(3)).entered("tp", 5, 0, 1, done=5).waits(2, "tp", 5, kind=Kind.BROADCAST, peer=0)
    job.stopped[1] = True
    graph = graph_of(job)
    assert not len(graph.sinks)
    assert graph.stuck.tolist() == [0]


def test_a_chain_of_waits_ends_at_the_rank_that_waits_for_nobody() -> None:
    # GIVEN tp 0-1, pp 1 <- 2: rank 0 waits for 1, 1 for a message of 2, 2 is in no operation
    job = Job(3, tp=[0, 1], pp=[1, 2]).waits(0, "tp", 4).waits(1, "pp", 1, kind=Kind.RECV, peer=1)
    graph = graph_of(job)
    assert graph.sinks.tolist() == [2]
    assert graph.waiting.tolist() == [0, 1]


def test_a_rank_that_waits_in_another_thread_is_still_the_end() -> None:
    # GIVEN rank 1: its data thread is blocked on `data`, its main thread serves `tp` and computes
    job = Job(3, tp=[0, 1], data=[1, 2]).waits(0, "tp", 4)
    job.waits(1, "data", 2, tid=777).entered("tp", 3, 1, tid=main_tid(1))
    graph = graph_of(job)
    # THEN it is the end for tp, as rank 2 is for `data`
    assert graph.sinks.tolist() == [1, 2]
    # WHEN it is the main thread that is blocked THEN rank 1 is a victim
    job = Job(3, tp=[0, 1], data=[1, 2]).waits(0, "tp", 4).waits(1, "data", 2).entered("tp", 3, 1, tid=main_tid(1))
    assert graph_of(job).sinks.tolist() == [2]


def test_a_target_that_has_never_used_the_communicator_is_served_by_its_main_thread() -> None:
    # GIVEN rank 1 has issued nothing on tp yet (no thread known), its main thread waits elsewhere
    job = Job(3, tp=[0, 1], dp=[1, 2]).waits(0, "tp", 1).waits(1, "dp", 1).entered("tp", 0, 1, tid=0)
    assert graph_of(job).sinks.tolist() == [2]


def test_or_by_the_thread_that_issued_its_latest_operation_elsewhere() -> None:
    # GIVEN rank 1 trains in a thread of its own, which waits on dp, and nothing of it was issued on tp yet
    job = Job(3, tp=[0, 1], dp=[1, 2]).waits(0, "tp", 1).waits(1, "dp", 1, tid=777).entered("tp", 0, 1, tid=0)
    job.issuing_tid[1] = 777
    # THEN rank 1 is a victim
    assert graph_of(job).sinks.tolist() == [2]


def test_absence_counts_only_if_the_ring_was_read_after_the_others_entered() -> None:
    # GIVEN rank 1 may have been read before rank 0 entered
    job = Job(2, tp=[0, 1]).waits(0, "tp", 4, for_s=2.0)
    job.read_after_s[1] = NOW_S - 2.5
    graph = graph_of(job)
    # THEN nobody is blamed, and it is said who is not known
    assert not len(graph.sinks)
    assert graph.unseen.tolist() == [1]
    # WHEN it was read later THEN it is
    job.read_after_s[1] = NOW_S - 1.0
    assert graph_of(job).sinks.tolist() == [1]


def test_the_first_to_enter_decides_what_is_known() -> None:
    # GIVEN rank 2 was read after rank 0 entered, but before rank 1 did
    job = Job(3, tp=range(3)).waits(0, "tp", 4, for_s=5.0).waits(1, "tp", 4, for_s=1.0)
    job.read_after_s[2] = NOW_S - 2.0
    # THEN it is known that it keeps the round
    assert graph_of(job).sinks.tolist() == [2]


def test_a_rank_that_was_never_read_is_not_known_and_one_that_is_gone_says_no_more() -> None:
    job = Job(3, tp=range(3)).waits(0, "tp", 4)
    job.present[1] = False
    job.read_after_s[1] = -np.inf
    job.gone[2] = True
    job.read_after_s[2] = NOW_S - 50.0
    graph = graph_of(job)
    assert graph.sinks.tolist() == [2]
    assert graph.unseen.tolist() == [1]


def test_a_silent_agent_makes_neither_victims_nor_culprits() -> None:
    # GIVEN nothing was heard of ranks 1 and 2 for a while; 1 was blocked then, 2 was not
    job = Job(3, tp=range(3)).waits(0, "tp", 4).waits(1, "tp", 4)
    job.fresh[[1, 2]] = False
    graph = graph_of(job)
    assert graph.waiting.tolist() == [0]
    assert not len(graph.sinks)
    assert graph.unseen.tolist() == [2]
    # AND a wait that was seen on a silent node does not grow old: nothing is stuck
    job = Job(2, tp=range(2)).waits(0, "tp", 4).entered("tp", 4, 1)
    job.fresh[0] = False
    assert not len(graph_of(job).stuck)


def test_who_waited_when_its_agent_fell_silent_may_be_the_end_by_now() -> None:
    # GIVEN rank 0 waits for rank 1, which waited for rank 2 when it was last heard of
    job = Job(3, tp=[0, 1], dp=[1, 2]).waits(0, "tp", 4).waits(1, "dp", 4)
    job.fresh[1] = False
    graph = graph_of(job)
    assert not len(graph.sinks)
    assert graph.unseen.tolist() == [1]


def test_members_that_are_not_known_name_nobody() -> None:
    # GIVEN a communicator whose second member the sensor could not know
    job = Job(2, tp=[0, -1]).waits(0, "tp", 4)
    graph = graph_of(job)
    assert not len(graph.sinks)
    assert not len(graph.unseen)
    assert not len(graph.stuck)


def test_young_waits_make_no_edges_but_still_block_their_rank() -> None:
    # GIVEN rank 0 has waited for ten seconds, rank 1 for a tenth
    job = Job(3, tp=[0, 1], dp=[1, 2]).waits(0, "tp", 4).waits(1, "dp", 4, for_s=0.1)
    graph = graph_of(job)
    assert edges_of(graph, job) == {(0, 1)}
    assert not len(graph.sinks)


def test_the_age_of_a_wait_is_what_it_was_when_the_ring_was_read() -> None:
    # GIVEN a wait that had lasted 0.1 s when it was read two seconds ago
    job = Job(2, tp=[0, 1]).waits(0, "tp", 4, for_s=2.1)
    job.read_s[0] = NOW_S - 2.0
    assert not len(graph_of(job).edges.wait)


def test_a_cycle_over_two_communicators() -> None:
    # GIVEN 0 in a before b, 1 in b before a, and rank 2 behind them
    job = Job(3, a=[0, 1], b=[0, 1], c=[1, 2]).waits(0, "a", 3).waits(1, "b", 6).waits(2, "c", 2)
    graph = graph_of(job)
    # THEN the two are the cycle, rank 2 hangs on it
    assert not len(graph.sinks)
    assert graph.cycle.tolist() == [0, 1]
    assert graph.cycle_explicit
    # WHEN one of the waits was inferred THEN it is said
    job = Job(3, a=[0, 1], b=[0, 1]).waits(0, "a", 3).waits(1, "b", 6, explicit=False)
    assert graph_of(job).cycle.tolist() == [0, 1]
    assert not graph_of(job).cycle_explicit


def test_a_cycle_of_messages() -> None:
    # GIVEN four ranks in a ring, each blocked in its receive before it sends
    job = Job(4, world=range(4))
    for rank in range(4):
        job.waits(rank, "world", 1, kind=Kind.RECV, peer=(rank + 1) % 4)
    assert graph_of(job).cycle.tolist() == [0, 1, 2, 3]


def test_a_rank_that_only_waits_for_a_cycle_is_not_on_it() -> None:
    # GIVEN a chain 4 -> 3 -> 2 -> {0, 1}
    job = Job(5, a=[0, 1], b=[0, 1], c=[1, 2], d=[2, 3], e=[3, 4])
    job.waits(0, "a", 3).waits(1, "b", 6).waits(2, "c", 1).waits(3, "d", 1).waits(4, "e", 1)
    assert graph_of(job).cycle.tolist() == [0, 1]


def test_no_cycle_is_claimed_while_somebody_is_at_the_end() -> None:
    job = Job(3, a=[0, 1, 2], b=[0, 1]).waits(0, "a", 3).waits(1, "b", 6)
    graph = graph_of(job)
    assert graph.sinks.tolist() == [2]
    assert not len(graph.cycle)


def test_all_inside_and_nothing_moves() -> None:
    job = Job(4, tp=range(4))
    for rank in range(4):
        job.waits(rank, "tp", 2)
    graph = graph_of(job)
    assert graph.stuck.tolist() == [0, 1, 2, 3]
    assert not len(graph.edges.wait)


def test_nothing_waits() -> None:
    graph = graph_of(Job(4, tp=range(4)))
    assert not len(graph.waiting)
    assert not len(graph.sinks)
    assert not len(graph.stuck)


def test_who_waits_longest_is_the_witness() -> None:
    job = Job(4, tp=range(4)).waits(0, "tp", 4, for_s=3).waits(1, "tp", 4, for_s=8).waits(2, "tp", 4, for_s=5)
    facts = waiting_for(job.picture(), graph_of(job), 3)
    assert int(facts["wait"]["rank"]) == 1
    assert facts["waiters"].tolist() == [0, 1, 2]


def test_half_of_a_large_world_waits_for_the_other_half() -> None:
    # GIVEN 8,192 ranks, half of them inside the world's barrier
    job = Job(8192, world=range(8192))
    for rank in range(4096):
        job.waits(rank, "world", 2, kind=Kind.BARRIER)
    picture = job.picture()
    # WHEN the graph is built THEN its size goes with the ranks, not with the pairs of them
    start_s = time.perf_counter()
    graph = build(picture, 0.6)
    assert time.perf_counter() - start_s < 2.0
    assert len(graph.edges.target) == 4096
    assert graph.sinks.tolist() == list(range(4096, 8192))
    assert len(waiting_for(picture, graph, 5000)["waiters"]) == 4096
