"""Ranks that wait in a circle: who entered its operation out of order."""

from __future__ import annotations

import numpy as np
from batches import T0, Node, S, analyzer, comm_info, records, watch

from whichrank.analyzer import Analyzer
from whichrank.locate.signatures import Skew
from whichrank.model.incident import Cause, Incident
from whichrank.model.sequence import Edit

TP, PP, EXTRA = 7, 8, 9
ITERATIONS = 30
NEXT = 2 * ITERATIONS + 1


def job() -> tuple[Analyzer, Node]:
    """Two ranks that have alternated between two communicators for thirty iterations; the third was never used."""
    a = analyzer()
    node = Node("a:1", [0, 1], 2)
    node.comm(comm_info(TP, [0, 1], "mesh_tp"), comm_info(PP, [0, 1], "mesh_pp"), comm_info(EXTRA, [0, 1], "mesh_ep"))
    rows = []
    for rank in (0, 1):
        for number in range(1, ITERATIONS + 1):
            rows += [records(rank, TP, number, 1, ordinal=2 * number - 1)]
            rows += [records(rank, PP, number, 1, ordinal=2 * number)]
        node.did(rank, TP, ITERATIONS).did(rank, PP, ITERATIONS)
    a.feed(node.batch(0.0, np.concatenate(rows)), a_second(0.0))
    return a, node


def a_second(at_s: float) -> float:

    return T0 / S + at_s


def last_word(a: Analyzer, node: Node) -> Incident:
    said = watch(a, node, first_s=1.0, last_s=12.0)
    assert said
    return said[-1]


def test_the_one_that_went_against_its_own_past_is_named() -> None:
    # GIVEN rank 0 stands where its iteration goes on, and rank 1 has entered the other communicator first
    a, node = job()
    node.waits(0, TP, ITERATIONS + 1, 0.5, ordinal=NEXT)
    node.waits(1, PP, ITERATIONS + 1, 0.5, ordinal=NEXT)
    word = last_word(a, node)
    assert [c.rank for c in word.culprits] == [1]
    assert word.cause in (Cause.DEADLOCK, Cause.INCONSISTENT)


def test_two_that_departed_in_different_ways_share_no_mistake() -> None:
    # GIVEN both stand where they never stood, each in another operation
    a, node = job()
    node.waits(0, EXTRA, 1, 0.5, ordinal=NEXT)
    node.waits(1, PP, ITERATIONS + 1, 0.5, ordinal=NEXT)
    # THEN it is a deadlock, and nobody is named
    word = last_word(a, node)
    assert word.cause == Cause.DEADLOCK
    assert not word.culprits


def test_a_circle_that_a_skew_has_led_to_is_held_against_nobody_else() -> None:
    # GIVEN rank 0 was told to have repeated an operation of the first group some iterations ago
    a, node = job()
    edit = Edit(ordinal=20, missing=(), extra=(1,), period=2)
    assert a.case.skews.report(Skew(0, a.store.sequences.key_of(0), edit, iterations_since=20))
    # WHEN both wait in a circle, in which rank 1 has departed from its past THEN it is rank 0 still
    node.waits(0, TP, ITERATIONS + 1, 0.5, ordinal=NEXT)
    node.waits(1, PP, ITERATIONS + 1, 0.5, ordinal=NEXT)
    assert [c.rank for c in last_word(a, node).culprits] == [0]


LONG, SEEN_AT = 40, 9


def long_iterations(*, has_been_behind: bool) -> tuple[Analyzer, Node]:
    """Five ranks whose iterations are longer than what is asked of their past; rank 3 is in the third group alone.

    All have used that group once where an iteration ends.

    Args:
        has_been_behind: And once directly behind an operation of the group in which the others are.
    """
    a = analyzer()
    ranks = list(range(5))
    node = Node("a:1", ranks, 5)
    node.comm(comm_info(TP, ranks, "mesh_tp"), comm_info(PP, ranks, "mesh_pp"), comm_info(EXTRA, ranks, "mesh_ep"))
    issued = {TP: 0, PP: 0, EXTRA: 0}
    rows, ordinal = [], 1
    for number in range(ITERATIONS):
        groups = [(EXTRA, 1)] if number == 2 and has_been_behind else []
        groups += [(TP, LONG), (PP, 1), *([(EXTRA, 1)] if number == SEEN_AT else [])]
        groups = [(TP, 1), *groups] if number == 2 else groups
        for group, count in groups:
            rows += [records(rank, group, issued[group] + 1, count, ordinal=ordinal) for rank in ranks]
            issued[group] += count
            ordinal += count
    for rank in ranks:
        for group, count in issued.items():
            node.did(rank, group, count)
    a.feed(node.batch(0.0, np.concatenate(rows)), a_second(0.0))
    for rank in ranks:
        group = EXTRA if rank == 3 else TP
        node.waits(rank, group, issued[group] + 1, 0.5, ordinal=ordinal)
    return a, node


def test_the_one_that_does_what_no_other_did_is_named_though_its_past_allows_it() -> None:
    word = last_word(*long_iterations(has_been_behind=False))
    assert [c.rank for c in word.culprits] == [3]
    assert "what all others did" in word.culprits[0].why
    assert word.cause == Cause.INCONSISTENT
    # AND it may only have come too early, where both have been in this order before
    word = last_word(*long_iterations(has_been_behind=True))
    assert [c.rank for c in word.culprits] == [3]
    assert word.cause == Cause.DEADLOCK
