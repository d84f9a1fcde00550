"""Batches that are taken at once say what they would have said one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import T0, Node, S, comm_info, records

from whichrank.analyzer import Analyzer
from whichrank.config import AnalyzerConfig
from whichrank.model.codes import Status
from whichrank.model.incident import Incident
from whichrank.model.telemetry import Batch, ProcessState
from whichrank.store.merged import Merged, groups, with_portions
from whichrank.store.store import Store

NOW_S = T0 / S
RANKS = 12
ON_EACH = 3
WORLD = comm_info(7, list(range(RANKS)))


NOTHING_ELSE: dict[str, Any] = {"ranks": b"", "comms": b"", "waits": b"", "inflight": b"", "comm_info": []}
"""Beside records, in a batch."""


def nodes() -> list[Node]:
    """Each on a clock of its own, and its batches under way for another time."""
    firsts = range(0, RANKS, ON_EACH)
    made = [Node(f"n{at}:1", list(range(at, at + ON_EACH)), RANKS, clock_s=7.0 * at, delay_s=at / 100) for at in firsts]
    return [node.comm(WORLD).comm(comm_info(9 + at, node.ranks)) for at, node in enumerate(made)]


def history(seed: int) -> list[list[Batch]]:
    """What nodes report at some times: operations, waits, stops, failures, and batches that come twice."""
    rng = np.random.default_rng(seed)
    job, done, said = nodes(), 0, list[list[Batch]]()
    for time in range(1, 30):
        first, done = done + 1, done + int(rng.integers(1, 6))
        together = []
        for node in job:
            parts = [records(rank, 7, first, done - first + 1) for rank in node.ranks]
            parts[0]["row"]["status"][-1] = Status.FAILED if rng.random() < 0.05 else Status.DONE
            parts[1]["row"]["reduce_op"][-1] = 4 if rng.random() < 0.05 else 0
            for rank in node.ranks:
                node.did(rank, 7, done)
            node.waits(node.ranks[0], 7, done + 1, since_s=time - 0.4)
            if rng.random() < 0.1:
                node.is_(node.ranks[1], ProcessState.STOPPED)
            batch = node.batch(float(time), np.concatenate(parts))
            together += [batch, batch] if rng.random() < 0.1 else [batch]
        said.append(together)
    return said


def words_of(seed: int, *, at_once: bool, in_order: bool = True) -> tuple[list[Incident], Analyzer]:
    analyzer, rng = Analyzer(AnalyzerConfig(hang_timeout_s=5.0), "job", 0.0), np.random.default_rng(seed)
    words: list[Incident] = []
    for time, batches in enumerate(history(seed), start=1):
        if not in_order:
            rng.shuffle(batches)
        if at_once:
            analyzer.feed_all(batches, NOW_S + time)
        else:
            for batch in batches:
                analyzer.feed(batch, NOW_S + time)
        words += analyzer.tick(NOW_S + time + 0.1)
    return words + analyzer.finish(NOW_S + 40), analyzer


@pytest.mark.parametrize("seed", range(8))
def test_what_is_taken_at_once_is_as_if_taken_one_by_one(seed: int) -> None:
    # WHEN the same batches are taken one after the other, and those of a time at once
    (one_by_one, a), (at_once, b) = (words_of(seed, at_once=at_once) for at_once in (False, True))
    # THEN the same is said, and the same is known
    assert at_once == one_by_one
    for name in a.store.ranks.__dict__:
        assert np.array_equal(getattr(a.store.ranks, name), getattr(b.store.ranks, name)), name
    pictures: list[dict[str, Any]] = [one.store.picture(NOW_S + 41).__dict__ for one in (a, b)]
    assert pictures[0].keys() == pictures[1].keys()
    for name, value in pictures[0].items():
        other = pictures[1][name]
        is_table = isinstance(value, np.ndarray) and value.dtype.names is not None
        same = sorted(value.tolist()) == sorted(other.tolist()) if is_table else np.array_equal(value, other)
        assert same, name


@pytest.mark.parametrize("seed", range(8))
def test_the_order_in_which_batches_of_one_time_have_come_is_of_no_matter(seed: int) -> None:
    (as_they_come, _), (in_order, _) = (words_of(seed, at_once=True, in_order=of) for of in (False, True))
    assert as_they_come == in_order


def test_two_batches_of_one_agent_are_taken_one_after_the_other() -> None:
    a, b = Node("a:1", [0], 2), Node("b:1", [1], 2)
    first, second, third = a.batch(1.0), b.batch(1.0), a.batch(2.0)
    assert groups([first, second, third]) == [[first, second], [third]]
    assert groups([]) == []


def test_records_that_were_sent_before_their_states_are_taken_with_them() -> None:
    # GIVEN an agent that has sent two parts of its records before the rest, and what another has sent meanwhile
    a, b = Node("a:1", [0, 1], 3).comm(WORLD), Node("b:1", [2], 3).comm(WORLD)
    begin = a.batch(0.5)
    first, second = (a.batch(1.0, records(rank, 7, 1, 3), **NOTHING_ELSE) for rank in (0, 1))
    other, rest = b.batch(1.0, records(2, 7, 1, 3)), a.batch(1.0, records(1, 7, 4, 2))
    lone = a.batch(2.0, records(0, 7, 4, 1), **NOTHING_ELSE)
    # THEN they are one, and what has no rest yet stays as it is
    joined = with_portions([first, second, other, rest, lone])
    assert [batch.agent for batch in joined] == ["b:1", "a:1", "a:1"]
    assert joined[1].record_rows()["rank"].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert (joined[1].sequence, joined[1].ranks) == (rest.sequence, rest.ranks)
    assert joined[2] is lone
    # and of several that have no rest yet the same holds, unless there is a gap
    assert [batch.record_rows()["rank"].tolist() for batch in with_portions([first, second])] == [[0, 0, 0, 1, 1, 1]]
    assert with_portions([first, rest]) == [first, rest]
    # WHEN a store takes them, some for a second time THEN it has each once
    store = Store()
    list(store.feed_all([begin], NOW_S + 0.5))
    taken = [fed for some in ([first], [first, second, rest], [rest, lone]) for fed in store.feed_all(some, NOW_S + 2)]
    assert [len(fed.done) for fed in taken] == [3, 5, 1]


def test_of_a_rank_that_two_agents_report_at_once_the_later_one_counts() -> None:
    # GIVEN an agent that was started anew, while a batch of the one before it was under way
    old, new = Node("a:1", [0, 1], 2).comm(WORLD), Node("a:2", [0, 1], 2).comm(WORLD)
    old.did(0, 7, 5)
    new.did(0, 7, 6).waits(1, 7, 7, since_s=0.5)
    store = Store()
    together = [old.batch(1.0, records(0, 7, 1, 2)), new.batch(1.1, records(0, 7, 3, 2))]
    feds = list(store.feed_all(together, NOW_S + 1.1))
    # THEN nothing of either is lost, and states are those of the later one
    assert [fed.done["counter"].tolist() for fed in feds] == [[1, 2], [3, 4]]
    assert store.ranks.agent.tolist()[:2] == [store.agent_number("a:2")] * 2
    assert store.picture(NOW_S + 1.2).waits["rank"].tolist() == [1]


def test_rows_know_their_batch() -> None:
    a, b = Node("a:1", [0, 1], 3), Node("b:1", [2], 3)
    merged = Merged([a.batch(1.0), b.batch(1.0)], [4, 2])
    of = merged.batch_of("ranks", merged.states.dtype)
    assert (merged.states["rank"].tolist(), of.tolist()) == ([0, 1, 2], [0, 0, 1])
    assert merged.agents[of].tolist() == [4, 4, 2]
