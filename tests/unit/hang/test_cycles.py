"""Ranks that wait in a circle: who entered its operation out of order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batches import T0, Node, S, analyzer, comm_info, records, watch

from whichrank.analyzer import Analyzer
from whichrank.analyzer.hangs import ASK_AFTER_S
from whichrank.hang.cycle import ASKED_OF_A_KIND, Cycle, _kinds, _ordinals, cycle_of, descriptions_of
from whichrank.hang.deadlock import _alone, _departed, _strays
from whichrank.locate import waitgraph
from whichrank.locate.signatures import Skew
from whichrank.model.incident import Cause, Incident
from whichrank.model.picture import OPS, WAITS
from whichrank.model.sequence import Edit
from whichrank.testbed.bench.scale.location import Standing, stand

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


def cycle_in(standing: Standing) -> Cycle:
    """The cycle of a job that stands still."""
    case, picture = standing.analyzer.case, standing.analyzer.store.picture(standing.now_s)
    on_cycle = waitgraph.build(picture, ASK_AFTER_S).cycle
    waits = picture.waits[np.isin(picture.waits["rank"], on_cycle)]
    return cycle_of(case, picture, descriptions_of(case), waits)


@pytest.mark.parametrize("ranks", [64, 128, 512])
def test_a_few_of_each_kind_say_the_same_as_all_ranks_of_the_cycle(ranks: int) -> None:
    # GIVEN one rank left an operation out, and a third of the job is on one cycle
    standing = stand("left out", ranks)
    case, cycle = standing.analyzer.case, cycle_in(standing)
    assert len(cycle.waits) >= ranks // 4
    # WHEN every rank is asked instead, THEN it is the same
    of_its_own = replace(cycle, kinds=np.arange(len(cycle.waits)))
    assert _departed(case, cycle) == _departed(case, of_its_own) == [standing.halt.rank]
    assert _strays(case, cycle) == _strays(case, of_its_own)
    assert _alone(case, cycle) == _alone(case, of_its_own)
    # AND the verdict names that rank, and says first what the first ranks of the cycle wait for
    finding = standing.locate()
    assert standing.is_right(finding)
    assert finding is not None
    assert [fact.where for fact in finding.evidence] == [f"rank {rank}" for rank in cycle.ranks[:16].tolist()]


def small_numbers(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows of WAITS or OPS whose fields are small numbers, so that fields of one row are other fields of others."""
    for name in ("rank", "comm", "counter", "kind", "peer"):
        rows[name] = rng.integers(-1 if name == "peer" else 0, 6, len(rows))
    return rows


def test_the_operation_of_each_wait_is_the_first_in_flight_with_all_of_its_fields() -> None:
    rng = np.random.default_rng(3)
    ops, waits = small_numbers(np.zeros(2000, OPS), rng), small_numbers(np.zeros(1000, WAITS), rng)
    ops["ordinal"] = np.arange(1, len(ops) + 1)
    fields = ["rank", "comm", "counter", "kind", "peer"]
    of: dict[tuple[int, ...], int] = {}
    for ordinal, op in enumerate(ops[fields].tolist(), 1):
        of.setdefault(op, ordinal)
    expected = [of.get(wait, -1) for wait in waits[fields].tolist()]
    assert _ordinals(ops, waits).tolist() == expected
    assert 0 < expected.count(-1) < len(expected)


class SomeSettled:
    """Ranks of odd numbers have a period that holds."""

    def are_settled(self, ranks: np.ndarray) -> np.ndarray:
        return ranks % 2 == 1


def test_waits_of_one_kind_are_alike_in_all_that_makes_a_kind() -> None:
    rng = np.random.default_rng(4)
    waits, ordinals = small_numbers(np.zeros(2000, WAITS), rng), rng.integers(-1, 6, 2000)
    descriptions = np.array([0, 1, 1, 2, 3, 1])
    kinds = _kinds(SomeSettled(), descriptions, waits, ordinals)  # type: ignore[arg-type]
    columns = (descriptions[waits["comm"]], waits["kind"], waits["rank"] % 2, ordinals)
    alike = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(set(alike)) == len(set(kinds.tolist())) == len(set(zip(alike, kinds.tolist(), strict=True))) > 100


def made_cycle(kinds: list[int]) -> Cycle:
    """One whose ranks are of these kinds."""
    waits = np.zeros(len(kinds), WAITS)
    waits["rank"] = np.arange(len(kinds))
    return Cycle(waits, np.ones(len(kinds), np.int64), np.array(kinds))


def test_all_of_a_kind_are_asked_in_which_one_is_found() -> None:
    # GIVEN a large kind that is found whole, a large one of which nobody is, and a kind of one rank
    kinds = [0, 1] * 10 + [2]
    wrong = {*range(1, 20, 2), 20} - {7}
    asked_last: list[int] = []

    def found_among(asked: np.ndarray) -> np.ndarray:
        asked_last[:] = asked.tolist()
        return np.array([at for at in asked if at in wrong], np.int64)

    found = made_cycle(kinds).find(found_among)
    # THEN all that are wrong are found, none that is right, and of the others a few were asked
    assert set(found.tolist()) == wrong
    assert len([at for at in asked_last if kinds[at] == 0]) == ASKED_OF_A_KIND


def test_kinds_are_asked_in_full_as_long_as_more_is_found() -> None:
    # GIVEN the second kind is found only when all of the first are asked
    kinds = [0] * 10 + [1] * 10

    def found_among(asked: np.ndarray) -> np.ndarray:
        return asked if np.count_nonzero(asked < 10) == 10 else asked[asked < 1]

    assert made_cycle(kinds).find(found_among).tolist() == list(range(20))
