"""The state of a job, fed by several agents, some of which die, come back, or send nonsense."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from batches import T0, Node, S, comm_info, records

from whichrank.model.codes import Status
from whichrank.model.telemetry import (
    COMM_ROW,
    INFLIGHT_REPORTED,
    PAIR_ROW,
    RANK_ROW,
    RECORD_REPORTED,
    WAIT_REPORTED,
    Event,
    ProcessState,
)
from whichrank.store.store import FRESH_S, MAX_WORLD, Store

NOW_S = T0 / S
TP = comm_info(7, [0, 1, 2, 3])


def two_nodes() -> tuple[Node, Node]:
    return Node("a:1", [0, 1], 4).comm(TP), Node("b:1", [2, 3], 4, clock_s=-3.0, delay_s=0.2).comm(TP)


def test_several_agents_make_one_job() -> None:
    # GIVEN two nodes, the second with a clock three seconds behind and a delay of 0.2 s
    store = Store()
    a, b = two_nodes()
    a.waits(0, 7, 5, since_s=8.0).did(1, 7, 5)
    b.did(2, 7, 5).waits(3, 7, 5, since_s=8.5)
    store.feed(a.batch(10.0), NOW_S + 10.0)
    store.feed(b.batch(10.0), NOW_S + 10.1)
    picture = store.picture(NOW_S + 10.2)
    # THEN all is on the analyzer's clock
    assert picture.present.tolist() == [True] * 4
    assert picture.fresh.all()
    assert picture.waits["rank"].tolist() == [0, 3]
    assert picture.waits["since_s"] - NOW_S == pytest.approx([8.0, 8.6], abs=1e-3)
    assert picture.read_after_s - NOW_S == pytest.approx([10.0, 10.0, 9.9, 9.9], abs=1e-3)
    assert picture.member_issued.tolist() == [5, 5, 5, 5]
    assert picture.member_done.tolist() == [4, 5, 5, 4]
    assert store.host == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_ranks_that_were_never_reported_are_not_present() -> None:
    store = Store()
    store.feed(Node("a:1", [0], 3).comm(comm_info(7, [0, 1, 2])).batch(1.0), NOW_S)
    picture = store.picture(NOW_S)
    assert picture.present.tolist() == [True, False, False]
    assert picture.member_seen.tolist() == [True, False, False]
    assert not picture.fresh[1:].any()


def test_a_silent_agent_is_no_news() -> None:
    store = Store()
    a, b = two_nodes()
    for node in (a, b):
        store.feed(node.batch(1.0), NOW_S + 1.0)
    store.feed(b.batch(4.5), NOW_S + 4.5)
    assert store.picture(NOW_S + 1.0 + FRESH_S).fresh.all()
    assert store.picture(NOW_S + 4.6).fresh.tolist() == [False, False, True, True]


def test_the_word_that_all_is_well_keeps_what_was_read_but_reads_nothing() -> None:
    # GIVEN two nodes, of which one says each second that all is well
    store = Store()
    a, b = two_nodes()
    for node in (a, b):
        store.feed(node.batch(1.0), NOW_S + 1.0)
    before = store.picture(NOW_S + 1.0)
    for at_s in (2.0, 3.0, 4.0, 5.0):
        word = dict.fromkeys(("ranks", "comms", "waits", "inflight"), b"")
        fed = store.feed(a.batch(at_s, is_well=True, **word), NOW_S + at_s)
        assert not len(fed.states)
    # THEN its ranks are as they were, and the others are silent; nothing counts as read since
    now = store.picture(NOW_S + 5.5)
    assert now.fresh.tolist() == [True, True, False, False]
    assert now.read_after_s.tolist() == before.read_after_s.tolist()
    assert store.agents_heard_s(NOW_S + 5.5) == pytest.approx(0.5)
    # AND its silence counts from its last word, and what it reports next is taken
    assert store.picture(NOW_S + 5.0 + FRESH_S + 0.1).fresh.tolist() == [False] * 4
    assert len(store.feed(a.batch(9.0), NOW_S + 9.0).states) == 2


def test_the_word_of_an_agent_that_has_reported_nothing_says_nothing() -> None:
    store = Store()
    a, _ = two_nodes()
    store.feed(a.batch(1.0, is_well=True, sequence=0, ranks=b"", comms=b""), NOW_S + 1.0)
    assert not store.ranks.size


def test_a_ring_that_is_not_read_any_more_is_no_news_but_one_that_has_ended_is() -> None:
    # GIVEN rank 0's ring was cut short and rank 1 has ended: both were read long ago, and their agent speaks
    store = Store()
    a, _ = two_nodes()
    a.is_(0, ProcessState.SLEEPING, read_ns=a.ns(1.0)).is_(1, ProcessState.GONE, read_ns=a.ns(1.0), ended_ns=a.ns(1.0))
    store.feed(a.batch(9.0), NOW_S + 9.0)
    assert store.picture(NOW_S + 9.1).fresh[:2].tolist() == [False, True]


def test_what_an_agent_said_before_it_was_replaced_is_forgotten() -> None:
    # GIVEN an agent reported a wait, and was killed and started again
    store = Store()
    old = Node("a:1", [0, 1], 2).comm(comm_info(7, [0, 1])).waits(0, 7, 5, since_s=1.0)
    store.feed(old.batch(2.0), NOW_S + 2.0)
    new = Node("a:2", [0, 1], 2).comm(comm_info(7, [0, 1])).did(0, 7, 9).did(1, 7, 9)
    store.feed(new.batch(3.0), NOW_S + 3.0)
    # THEN nobody waits any more
    picture = store.picture(NOW_S + 3.0)
    assert not len(picture.waits)
    assert not len(picture.ops)
    assert picture.member_issued.tolist() == [9, 9]


def test_a_batch_that_comes_twice_counts_once() -> None:
    store = Store()
    a, _ = two_nodes()
    a.is_(0, ProcessState.STOPPED)
    batch = a.batch(1.0, records(0, 7, 1, 5))
    assert len(store.feed(batch, NOW_S).done) == 5
    assert not len(store.feed(batch, NOW_S + 0.1).done)
    assert not store.picture(NOW_S).stopped[0]
    store.feed(a.batch(1.5), NOW_S + 0.5)
    assert store.picture(NOW_S + 0.5).stopped[0]


def test_a_batch_that_is_sent_again_without_states_changes_none() -> None:
    store = Store()
    a, _ = two_nodes()
    store.feed(a.waits(0, 7, 5, since_s=1.0).batch(2.0), NOW_S + 2.0)
    again = a.batch(2.5, records(1, 7, 1, 3), ranks=b"", comms=b"", pairs=b"", inflight=b"", waits=b"")
    fed = store.feed(again, NOW_S + 2.5)
    assert len(fed.done) == 3
    assert fed.done.comm.tolist() == [0, 0, 0]
    assert store.picture(NOW_S + 2.5).waits["rank"].tolist() == [0]


def test_a_dead_process_whose_rank_lives_elsewhere_is_of_before() -> None:
    # GIVEN rank 1, which ran on one node and, after a restart with fewer ranks, runs on another
    store = Store()
    a, _ = two_nodes()
    store.feed(a.batch(2.0), NOW_S + 2.0)
    elsewhere = Node("c:1", [1], 4)
    elsewhere.row[1] = {"pid": 555, "restart_count": 1}
    assert store.feed(elsewhere.batch(3.0), NOW_S + 3.0).restarted == {1}
    # WHEN the first node goes on to report that process, which died THEN it is not started again, and lives
    a.is_(1, ProcessState.GONE, ended_ns=a.ns(2.5))
    for at_s in (3.2, 3.7):
        assert not store.feed(a.batch(at_s), NOW_S + at_s).restarted
        assert not store.feed(elsewhere.batch(at_s), NOW_S + at_s).restarted
    assert not store.departures.ends().gone[1]
    # WHEN the other node is silent THEN what is reported counts
    store.feed(a.batch(20.0), NOW_S + 20.0)
    assert store.departures.ends().gone[1]


def test_communicators_are_over_once_a_process_of_them_is_replaced() -> None:
    # GIVEN two ranks of a communicator
    store = Store()
    first = Node("a:1", [0, 1], 2).comm(comm_info(7, [0, 1])).did(0, 7, 3).did(1, 7, 3)
    store.feed(first.batch(2.0), NOW_S + 2.0)
    assert not store.comms.member_left.any()
    # WHEN both are started again and make another one THEN the first one is over
    again = Node("a:2", [0, 1], 2).comm(comm_info(8, [0, 1])).did(0, 8, 1).did(1, 8, 1)
    for rank in (0, 1):
        again.row[rank] = {"pid": 555 + rank, "restart_count": 1}
    assert store.feed(again.batch(3.0), NOW_S + 3.0).restarted == {0, 1}
    assert store.comms.member_left.tolist() == [True, True, False, False]


def test_a_process_with_the_pid_of_the_one_that_it_replaces_is_another() -> None:
    # GIVEN a pod that was made again: pids are alike, the ring is not
    store = Store()
    a, _ = two_nodes()
    store.feed(a.batch(2.0), NOW_S + 2.0)
    assert not store.feed(a.batch(2.5), NOW_S + 2.5).restarted
    a.row[1] = {"created_ns": a.ns(2.8)}
    assert store.feed(a.batch(3.0), NOW_S + 3.0).restarted == {1}


def test_a_rank_whose_process_was_replaced_starts_anew() -> None:
    # GIVEN rank 1 failed and died
    store = Store()
    a, _ = two_nodes()
    a.is_(1, ProcessState.GONE, ended_ns=a.ns(2.0))
    failed = records(1, 7, 4, 1, status=Status.FAILED)
    store.feed(a.batch(2.0, failed, [Event("exit", 1, 101, a.ns(2.0), status=9)]), NOW_S + 2.0)
    assert store.departures.ends().status.tolist() == [-1, 9, -1, -1]
    assert store.picture(NOW_S + 2.0).ops["failed"].tolist() == [True]
    # WHEN the launcher has started it again
    a.row[1] = {"pid": 555, "restart_count": 1}
    # THEN nothing of that is its
    assert store.feed(a.batch(3.0), NOW_S + 3.0).restarted == {1}
    assert not store.departures.ends().gone.any()
    assert store.departures.ends().status.tolist() == [-1] * 4
    assert not len(store.picture(NOW_S + 3.0).ops)
    # AND what comes late of the old process is not either
    store.feed(a.batch(3.5, events=[Event("exit", 1, 101, a.ns(2.0), status=9)]), NOW_S + 3.5)
    assert store.departures.ends().status.tolist() == [-1] * 4


def test_a_gap_that_lost_records_leave_is_not_waited_for() -> None:
    # GIVEN two ranks of which five operations are known
    store = Store()
    a, _ = two_nodes()
    store.feed(a.batch(1.0, np.concatenate([records(rank, 7, 1, 5) for rank in (0, 1)])), NOW_S)
    # WHEN the next forty of both do not come, and of rank 1 it is known that they were lost
    a.row[1]["lost_records"] = 40
    store.feed(a.batch(1.5, np.concatenate([records(rank, 7, 46, 5) for rank in (0, 1)])), NOW_S)
    # THEN the sequence of rank 1 goes on behind them, that of rank 0 waits
    assert [store.sequences.sequence(rank).last_ordinal for rank in (0, 1)] == [5, 50]


def test_members_that_the_sensor_did_not_know_are_learnt_from_those_who_say() -> None:
    store = Store()
    unknown = comm_info(7, [], size=4)
    a = Node("a:1", [0, 1], 4)
    a.comms[7] = comm_info(7, [0, 1, 2, 3])
    a.issued = {(0, 7): (3, 3), (1, 7): (2, 2)}
    store.feed(a.batch(1.0, comm_info=[unknown]), NOW_S)
    picture = store.picture(NOW_S)
    assert picture.member_rank.tolist() == [0, 1, -1, -1]
    assert picture.member_issued.tolist() == [3, 2, 0, 0]
    assert store.comms.frontier(0, 1) == (2, 2)
    assert store.comms.frontier(0, 3) == (0, 0)


def test_many_communicators_come_a_few_at_a_time() -> None:
    # GIVEN communicators whose ids come in no order
    rng = np.random.default_rng(1)
    ids = rng.permutation(np.arange(1, 400)).tolist()
    store, a = Store(), Node("a:1", [0, 1], 2)
    for at in range(0, len(ids), 7):
        a.comm(*(comm_info(i, [0, 1]) for i in ids[at : at + 7]))
        store.feed(a.batch(1.0 + at), NOW_S)
    # THEN each has its own place
    found = store.comms.index(np.array(ids, np.uint64))
    assert [store.comms.info[c].comm_id for c in found.tolist()] == ids
    assert store.comms.index(np.array([400], np.uint64)).tolist() == [-1]
    assert store.comms.at.tolist() == list(range(0, 2 * len(ids), 2))
    assert store.comms.member_rank.tolist() == [0, 1] * len(ids)


def test_group_ranks_are_those_that_the_agent_reported() -> None:
    store, (a, _) = Store(), two_nodes()
    store.feed(a.batch(1.0), NOW_S)
    zero = np.zeros(3, np.int64)
    assert store.comms.group_ranks(zero, np.array([1, 0, 3])).tolist() == [1, 0, -1]


# ---- nonsense --------------------------------------------------------------------------------------------------------

EXTREMES: dict[str, list[int]] = {
    "rank": [-1, -(2**31), 2**31 - 1, MAX_WORLD, 3],
    "world_size": [-1, 2**31 - 1, 0],
    "group_rank": [2**32 - 1, 4],
    "comm_id": [0, 2**64 - 1],
    "comm": [0, 2**64 - 1],
    "peer": [-(2**31), 2**31 - 1],
}


def hostile(dtype: np.dtype[Any], **good: int) -> bytes:
    """Rows of which each has one column at one extreme."""
    cases = [(name, value) for name in dtype.names or () for value in EXTREMES.get(name, ())]
    rows = np.zeros(len(cases) + 1, dtype)
    for name, value in good.items():
        rows[name] = value
    for row, (name, value) in zip(rows, cases, strict=False):
        row[name] = value
    return rows.tobytes()


def test_rows_out_of_range_neither_crash_nor_allocate() -> None:
    store, (a, b) = Store(), two_nodes()
    store.feed(b.batch(1.0), NOW_S)
    a.waits(0, 7, 5, since_s=0.5)
    batch = msgspec.structs.replace(
        a.batch(1.0),
        ranks=hostile(RANK_ROW, world_size=4, pid=5), comms=hostile(COMM_ROW, comm_id=7),
        pairs=hostile(PAIR_ROW, comm_id=7, kind=33),
        inflight=hostile(INFLIGHT_REPORTED, comm=7), waits=hostile(WAIT_REPORTED, comm=7),
        records=hostile(RECORD_REPORTED, comm=7), events=[Event("exit", rank, 9, 5) for rank in (-5, 4, 10**9)],
    )  # fmt: skip
    tracemalloc.start()
    store.feed(batch, NOW_S + 1.0)
    picture = store.picture(NOW_S + 2.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * MAX_WORLD * RANK_ROW.itemsize
    assert picture.world_size <= MAX_WORLD
    for rows in (picture.waits, picture.ops, picture.pairs):
        assert ((rows["rank"] >= 0) & (rows["rank"] < picture.world_size)).all()
    assert ((picture.member_rank >= -1) & (picture.member_rank < picture.world_size)).all()
    store.departures.ends()


@pytest.mark.parametrize(
    "info",
    [
        comm_info(8, [], size=0),
        comm_info(8, [], size=-4),
        comm_info(8, [], size=1 << 40),
        comm_info(8, [0, 1], size=1 << 20),
        comm_info(0, [0, 1]),
        comm_info(-8, [0, 1]),
        comm_info(1 << 64, [0, 1]),
    ],
)
def test_a_communicator_that_cannot_be_is_left_out(info: Any) -> None:
    store, (a, _) = Store(), two_nodes()
    store.feed(a.batch(1.0, comm_info=[TP, info]), NOW_S)
    assert [i.comm_id for i in store.comms.info] == [7]


def test_members_that_cannot_be_are_nobody() -> None:
    store, (a, _) = Store(), two_nodes()
    store.feed(a.batch(1.0, comm_info=[comm_info(8, [0, -7, 2**31, 3]), comm_info(9, [1, 2**70])]), NOW_S)
    assert store.comms.member_rank.tolist() == [0, -1, -1, 3, -1, -1]


def test_so_many_memberships_are_nobodys_job() -> None:
    store, (a, _) = Store(), two_nodes()
    store.feed(a.batch(1.0), NOW_S)
    huge = [comm_info(100 + i, list(range(1 << 16))) for i in range(300)]
    store.feed(a.batch(1.5, comm_info=huge), NOW_S)
    assert len(store.comms.info) == 1


def test_an_empty_batch_of_an_unknown_agent() -> None:
    store = Store()
    fed = store.feed(msgspec.structs.replace(Node("a:1", [], 0).batch(1.0)), NOW_S)
    assert len(fed.done) == 0
    assert store.picture(NOW_S).world_size == 0


@pytest.mark.parametrize(("ranks", "kept"), [(8, 16384), (8192, 16384), (16384, 8192), (65536, 2048), (1 << 20, 2048)])
def test_of_a_large_job_fewer_operations_of_each_rank_are_kept(ranks: int, kept: int) -> None:
    store = Store()
    store.sequences.expect(ranks)
    sequence = store.sequences.sequence(0)
    sequence.feed(np.arange(1, 2 * kept + 1), np.arange(2 * kept, dtype=np.uint32))
    assert kept // 2 <= len(sequence.tokens) <= kept
