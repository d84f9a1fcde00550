"""A round that is complete on some members and not on another, while all run: where it shows is no culprit on TCP."""

from __future__ import annotations

import pytest
from batches import WORLD, Node, analyzer, watch

from whichrank.model.incident import Cause, Incident
from whichrank.model.kinds import Kind


def last_word(kind: Kind, behind: tuple[int, ...]) -> Incident:
    """Round 9 is complete for all but these, who wait in it; the others wait for them in round 10."""
    node = Node("a:1", [0, 1, 2, 3], 4).comm(WORLD)
    for rank in range(4):
        node.waits(rank, 7, 9 if rank in behind else 10, since_s=1.0, kind=kind)
    return watch(analyzer(), node, first_s=1.0, last_s=28.0)[-1]


@pytest.mark.parametrize("behind", [(2,), (1, 2)])
def test_who_still_waits_in_a_round_that_others_have_completed_is_a_candidate(behind: tuple[int, ...]) -> None:
    # GIVEN one rank or two that have not seen the end of an all-reduce
    word = last_word(Kind.ALL_REDUCE, behind)

    # THEN nobody is named, since it may be the path; they are candidates, and what would decide is said
    assert (word.cause, word.severity, word.culprits) == (Cause.UNKNOWN, "alert", ())
    assert tuple(c.rank for c in word.candidates) == behind
    assert "completed all_reduce #9" in word.candidates[0].why
    assert any("ss -tin" in command for command in word.next)


def test_an_operation_that_some_leave_early_says_nothing() -> None:
    # GIVEN a broadcast, which its root may leave before the others have entered
    word = last_word(Kind.BROADCAST, (2,))

    assert word.candidates == ()
