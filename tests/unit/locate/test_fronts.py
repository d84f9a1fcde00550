"""On which of its operations in flight a rank is blocked, where nobody saw a thread wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from job_pictures import Job

from whichrank.locate.fronts import with_fronts
from whichrank.locate.waitgraph import build
from whichrank.model.codes import UNNUMBERED
from whichrank.model.kinds import SYNCHRONISING, Kind
from whichrank.model.picture import Picture, Recorded


def picture(job: Job) -> Picture:
    """Of a recording of others: where agents look, nothing is inferred."""
    return replace(job.picture(), recorded=Recorded())


def fronts(job: Job) -> dict[int, tuple[str, int]]:
    """Of each rank that waits: communicator and number of what it waits in."""
    waits = with_fronts(picture(job)).waits
    return {int(w["rank"]): (job.names[int(w["comm"])], int(w["counter"])) for w in waits}


def test_the_oldest_operation_that_another_has_not_issued_blocks() -> None:
    # GIVEN a rank with three operations under way, of which all have issued the first
    job = Job(2, a=range(2), b=range(2))
    job.entered("a", 5, 0, 1).entered("b", 8, 0, done=6).entered("b", 6, 1, done=6)
    job.op(0, "a", 5, ordinal=1).op(0, "b", 7, ordinal=2).op(0, "b", 8, ordinal=3).op(1, "a", 5, ordinal=1)
    # THEN it waits in the second, and the other in what it has
    assert fronts(job) == {0: ("b", 7), 1: ("a", 5)}


def test_what_has_ended_for_others_comes_before_what_another_has_not_issued() -> None:
    # GIVEN a rank that does not see the end of 5, while its peers have completed 6 with it, and rank 2 lags elsewhere
    job = Job(3, a=[0, 1], b=range(3))
    job.entered("a", 6, 0, done=4).entered("a", 6, 1, done=6).entered("b", 2, 0, 1, done=1).entered("b", 1, 2, done=1)
    job.op(0, "b", 2, ordinal=1).op(0, "a", 5, ordinal=2).op(0, "a", 6, ordinal=3).op(1, "b", 2, ordinal=1)
    assert fronts(job) == {0: ("a", 5), 1: ("b", 2)}
    graph = build(with_fronts(picture(job)), 0.0)
    assert len(graph.overtaken) == 1


def test_what_contradicts_comes_before_what_another_has_not_issued() -> None:
    job = Job(3, a=range(3), b=range(3))
    job.entered("a", 4, 0, 1, 2).entered("b", 9, 0, done=8).entered("b", 8, 1, 2, done=8)
    job.op(0, "b", 9, ordinal=1)
    for rank, count in ((0, 64), (1, 1024), (2, 1024)):
        job.op(rank, "a", 4, count=count, ordinal=2)
    assert fronts(job)[0] == ("a", 4)


def test_a_send_comes_last() -> None:
    # GIVEN an early send that nobody receives, and an all-reduce that rank 1 has not issued
    job = Job(2, pp=range(2), dp=range(2)).entered("dp", 3, 0).entered("dp", 2, 1, done=2)
    job.pair(0, "pp", Kind.SEND, peer=1, issued=1)
    job.op(0, "pp", 1, kind=Kind.SEND, peer=1, ordinal=1).op(0, "dp", 3, ordinal=2)
    assert fronts(job) == {0: ("dp", 3)}
    # AND where there is nothing else, it is that
    job = Job(2, pp=range(2)).pair(0, "pp", Kind.SEND, peer=1, issued=1)
    assert fronts(job.op(0, "pp", 1, kind=Kind.SEND, peer=1)) == {0: ("pp", 1)}


def test_one_that_was_not_read_counts_less_than_one_that_was() -> None:
    # GIVEN an older operation that rank 1 may not have issued, and one that rank 2 has not, for sure
    job = Job(3, a=[0, 1], b=[0, 2]).entered("a", 1, 0).entered("b", 1, 0)
    job.read_after_s[1] = 0.0
    job.op(0, "a", 1, ordinal=1).op(0, "b", 1, ordinal=2)
    assert fronts(job) == {0: ("b", 1)}


def test_ranks_that_a_sensor_saw_wait_are_left_as_they_are() -> None:
    job = Job(2, a=range(2), b=range(2)).entered("b", 3, 0).waits(0, "a", 2)
    job.op(0, "b", 3, ordinal=1).op(0, "a", 2, ordinal=2)
    assert fronts(job) == {0: ("a", 2)}


def test_ranks_that_were_not_read_or_whose_operation_failed_get_none() -> None:
    job = Job(3, a=range(3)).entered("a", 1, 0, 1)
    job.op(0, "a", 1, failed=True).op(1, "a", 1)
    job.fresh[1] = False
    assert fronts(job) == {}


def test_where_agents_read_nothing_is_inferred() -> None:
    job = Job(3, a=range(3)).entered("a", 7, 1, 2, done=7)
    job.waits(0, "a", 6).entered("a", 7, 0, done=5).op(1, "a", 9)
    assert len(with_fronts(job.picture()).waits) == 1
    assert len(build(job.picture(), 0.6).overtaken) == 0


def test_a_message_in_line_behind_something_else_may_have_been_answered_long_ago() -> None:
    # GIVEN a receive that is counted from the last complete one, behind a collective that all have entered
    job = Job(3, a=range(3), b=range(3)).entered("a", 1, 0, 1, 2)
    job.op(0, "a", 1, ordinal=1).op(0, "b", UNNUMBERED + 5, kind=Kind.RECV, peer=1, ordinal=2)
    # THEN it is the collective that blocks; counted one by one it would be the receive
    assert fronts(job) == {0: ("a", 1)}
    job = Job(3, a=range(3), b=range(3)).entered("a", 1, 0, 1, 2)
    job.op(0, "a", 1, ordinal=1).op(0, "b", 5, kind=Kind.RECV, peer=1, ordinal=2)
    assert fronts(job) == {0: ("b", 5)}


def test_an_all_to_all_may_end_without_a_member_that_has_nothing_for_it() -> None:
    job = Job(3, a=range(3)).entered("a", 7, 1, 2, done=7)
    job.waits(0, "a", 6, kind=Kind.ALL_TO_ALL).entered("a", 7, 0, done=5)
    assert len(build(picture(job), 0.6).overtaken) == 0


# ---- what others have completed beyond it -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(SYNCHRONISING - {Kind.ALL_TO_ALL}))
def test_a_rank_whose_peers_have_completed_a_later_round_with_it_waits_for_nobody(kind: Kind) -> None:
    job = Job(3, a=range(3)).entered("a", 7, 1, 2, done=7)
    job.waits(0, "a", 6, kind=kind).entered("a", 7, 0, done=5)
    graph = build(picture(job), 0.6)
    assert len(graph.overtaken) == 1
    assert graph.sinks.tolist() == []


@pytest.mark.parametrize(
    ("why", "kind", "mine", "theirs"),
    [
        ("it may just not have been told yet", Kind.ALL_REDUCE, 6, 6),
        ("later rounds that it has not issued were completed since it was read", Kind.ALL_REDUCE, 6, 7),
        ("a broadcast may be over for some and not for others", Kind.BROADCAST, 7, 7),
    ],
)
def test_a_rank_that_may_just_be_late_is_not_overtaken(why: str, kind: Kind, mine: int, theirs: int) -> None:
    assert why
    job = Job(3, a=range(3)).entered("a", theirs, 1, 2, done=theirs)
    job.waits(0, "a", 6, kind=kind, peer=0).entered("a", mine, 0, done=5)
    assert len(build(picture(job), 0.6).overtaken) == 0
