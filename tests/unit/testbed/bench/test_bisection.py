"""Bisection: every pair meets once, and what is decided follows from who does well with whom."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from whichrank.testbed.bench.methods.bisection import Pair, bisect, decide, is_good, rounds


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8])
def test_all_meet_once_and_nobody_twice_in_a_round(nodes: int) -> None:
    met = list(rounds(nodes))
    for pairs in met:
        there = [node for pair in pairs for node in pair]
        assert len(there) == len(set(there))
    everyone = [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    assert sorted(pair for pairs in met for pair in pairs) == everyone


def judged(bad: set[Pair], until: int) -> tuple[list[int], list[Pair], bool]:
    """What is found of four nodes after so many rounds."""
    tried = [pair for pairs in list(rounds(4))[:until] for pair in pairs]
    found = decide({pair: pair not in bad for pair in tried})
    return sorted(found.nodes), sorted(found.pairs), found.is_decided


def test_a_node_that_fails_with_all_is_bad_after_two_rounds() -> None:
    bad = {(0, 3), (1, 3), (2, 3)}
    assert judged(bad, 1) == ([], [], False)
    assert judged(bad, 2) == ([3], [], True)


def test_a_path_is_bad_where_both_of_a_pair_do_well_with_others() -> None:
    assert judged({(0, 3)}, 2) == ([], [(0, 3)], True)


def test_between_two_halves_it_is_the_paths_and_takes_all_rounds() -> None:
    bad = {(0, 3), (1, 2), (0, 2), (1, 3)}
    assert judged(bad, 2) == ([], [], False)
    assert judged(bad, 3) == ([], sorted(bad), True)


def test_nothing_is_decided_where_all_do_well_or_none_does() -> None:
    assert judged(set(), 3) == ([], [], False)
    assert judged({(a, b) for a in range(4) for b in range(4)}, 3) == ([], [], False)


def test_a_pair_is_bad_that_does_not_train_or_takes_twice_as_long() -> None:
    assert is_good({(0, 1): 0.1, (2, 3): 0.21}) == {(0, 1): True, (2, 3): False}
    # WHERE one does not train at all THEN it alone is bad: the others shared the machine with fewer
    assert is_good({(0, 1): 0.1, (2, 3): 0.21, (0, 2): None}) == {(0, 1): True, (2, 3): True, (0, 2): False}
    assert is_good({(0, 1): None}) == {(0, 1): False}


def test_what_is_said_names_all_ranks_of_a_bad_node() -> None:
    # GIVEN four nodes of two ranks, of which the third sends slowly
    met: list[Pair] = []

    def train(pairs: Sequence[Pair]) -> dict[Pair, float | None]:
        met.extend(pairs)
        return {pair: 0.7 if 2 in pair else 0.2 for pair in pairs}

    (word,) = bisect(train, nodes=4, local=2)
    assert (word.kind, word.ranks, word.links, len(met)) == ("slow", (4, 5), (), 4)
    # WHERE all do well THEN all have met, and nothing is said
    assert bisect(lambda pairs: dict.fromkeys(pairs, 0.2), nodes=4, local=2) == []
