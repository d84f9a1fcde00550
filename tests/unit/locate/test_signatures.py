"""Contradictions in one round, who deviates in it, and operations silently left out or repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from job_pictures import Job
from numpy.typing import NDArray

from whichrank.locate.signatures import Deviation, confirm_skew, contradictions, deviants
from whichrank.model.clause import Witness
from whichrank.model.codes import Flag
from whichrank.model.kinds import Kind
from whichrank.model.picture import Bools, Ints, Picture
from whichrank.model.sequence import Edit, Tokens
from whichrank.model.signature import signatures


def sides_of(job: Job) -> list[dict[int, int]]:
    return [dict(zip(c.ranks, c.sides, strict=True)) for c in contradictions(job.picture())]


def round_of(kind: Kind, *members: dict[str, Any], **common: Any) -> Job:
    """One round of one communicator: what each member issued."""
    job = Job(len(members), tp=range(len(members)))
    for rank, more in enumerate(members):
        reported = {"kind": kind} | common | more
        job.op(rank, "tp", 3, **reported)
    return job


@pytest.mark.parametrize(
    ("kind", "differs"),
    [
        (Kind.ALL_REDUCE, {"count": 2048}),
        (Kind.ALL_REDUCE, {"dtype": 7}),
        (Kind.ALL_REDUCE, {"reduce_op": 4}),
        (Kind.ALL_REDUCE, {"kind": Kind.ALL_GATHER}),
        (Kind.BROADCAST, {"peer": 1}),
        (Kind.BROADCAST, {"count": 2048}),
        (Kind.REDUCE, {"peer": 1}),
        (Kind.REDUCE, {"reduce_op": 4}),
        (Kind.GATHER, {"peer": 1}),
        (Kind.GATHER, {"dtype": 7}),
        (Kind.GATHER, {"count": 2048}),
        (Kind.SCATTER, {"count": 2048}),
        (Kind.SCATTER, {"peer": 1}),
        (Kind.ALL_GATHER, {"count": 2048}),
        (Kind.REDUCE_SCATTER, {"count": 2048}),
        (Kind.REDUCE_SCATTER, {"reduce_op": 4}),
        (Kind.ALL_TO_ALL, {"count": 2048}),
        (Kind.BARRIER, {"kind": Kind.ALL_REDUCE}),
    ],
)
def test_what_members_must_agree_on(kind: Kind, differs: dict[str, Any]) -> None:
    # GIVEN three members, of which the last differs WHEN compared THEN there are two sides
    (sides,) = sides_of(round_of(kind, {}, {}, differs, peer=0))
    assert sides[0] == sides[1] != sides[2]


@pytest.mark.parametrize(
    ("kind", "common", "differs"),
    [
        (Kind.GATHER, {"flags": Flag.FREE_SIZES}, {"count": 2048}),
        (Kind.SCATTER, {"flags": Flag.FREE_SIZES}, {"count": 2048}),
        (Kind.ALL_GATHER, {"flags": Flag.FREE_SIZES}, {"count": 2048}),
        (Kind.REDUCE_SCATTER, {"flags": Flag.FREE_SIZES}, {"count": 2048}),
        (Kind.BARRIER, {}, {"count": 1, "dtype": 0}),
        (Kind.ALL_REDUCE, {}, {"peer": 5}),
        (Kind.ALL_GATHER, {}, {"reduce_op": 4}),
        (Kind.BROADCAST, {"peer": 0}, {"reduce_op": 4}),
    ],
)
def test_what_may_legally_differ(kind: Kind, common: dict[str, Any], differs: dict[str, Any]) -> None:
    assert not sides_of(round_of(kind, {}, differs, {}, **common))


def test_operations_of_other_rounds_and_communicators_are_not_compared() -> None:
    job = Job(2, tp=range(2), dp=range(2)).op(0, "tp", 3).op(1, "tp", 4, count=7).op(1, "dp", 3, count=9)
    assert not sides_of(job)


def test_a_message_of_another_size_than_its_receiver_expects_is_a_contradiction() -> None:
    job = Job(2, pp=range(2)).op(0, "pp", 3, Kind.SEND, peer=1).op(1, "pp", 3, Kind.RECV, peer=0, count=7)
    assert sides_of(job) == [{0: 0, 1: 1}]


@pytest.mark.parametrize(
    "other",
    [
        {"peer": 0},  # the same size
        {"peer": 0, "count": 512, "dtype": 7},  # in other words
        {"peer": 0, "count": 7, "tag": 5},  # another conversation
        {"peer": 2, "count": 7},  # of somebody else
    ],
)
def test_messages_that_meet_or_do_not_belong_together_say_nothing(other: dict[str, Any]) -> None:
    job = Job(3, pp=range(3)).op(0, "pp", 3, Kind.SEND, peer=1).op(1, "pp", 3, Kind.RECV, **other)
    assert not sides_of(job)
    another = Job(3, pp=range(3)).op(0, "pp", 3, Kind.SEND, peer=1).op(1, "pp", 4, Kind.RECV, peer=0, count=7)
    assert not sides_of(another)


def test_a_message_that_failed_is_compared_where_its_tag_is_known_from_the_pair() -> None:
    # GIVEN a send of which only the record of its failure is left, without a tag
    job = Job(2, pp=range(2)).op(0, "pp", 3, Kind.SEND, peer=1, failed=True)
    job.op(1, "pp", 3, Kind.RECV, peer=0, tag=5, count=7)
    assert not sides_of(job)
    job.pair(0, "pp", Kind.SEND, 1, issued=3, tag=5)
    assert sides_of(job) == [{0: 0, 1: 1}]
    # BUT two conversations cannot be told apart
    job.pair(0, "pp", Kind.SEND, 1, issued=3, tag=6)
    assert not sides_of(job)


class Completed:
    """Rounds that members have completed, as `Rounds` says them: (communicator, counter, rank) -> what was issued."""

    def __init__(self, job: Job, *rows: dict[str, Any]) -> None:
        done = Job(job.ranks, **dict(zip(job.names, job.members, strict=True)))
        for row in rows:
            done.op(**row)
        self.ops = done.picture().ops

    def differ(self, comm: Ints, counter: Ints, sign: NDArray[np.uint64]) -> Bools:
        first = {}
        for op, of in zip(self.ops, signatures(self.ops), strict=True):
            first.setdefault((int(op["comm"]), int(op["counter"])), of)
        rounds = zip(comm.tolist(), counter.tolist(), sign, strict=True)
        known = [first.get((c, number), own) for c, number, own in rounds]
        return np.asarray(np.array(known, np.uint64) != sign)

    def ops_of(self, picture: Picture, comm: int, counter: int) -> np.ndarray[Any, Any]:
        return self.ops[(self.ops["comm"] == comm) & (self.ops["counter"] == counter)]


def test_what_is_in_flight_is_held_against_what_others_have_completed() -> None:
    # GIVEN a rank that is stuck in a round with 7 elements, which three others have completed with 5
    job = Job(4, dp=range(4)).op(3, "dp", 61, count=7)
    done = Completed(job, *({"rank": r, "comm": "dp", "counter": 61, "count": 5} for r in range(3)))
    # WHEN only what is in flight is compared THEN nothing shows, BUT with what is complete it is the odd one
    assert not contradictions(job.picture())
    (one,) = contradictions(job.picture(), done)
    assert one.ranks == (3, 0, 1, 2)
    assert one.sides[0] != one.sides[1] == one.sides[2] == one.sides[3]


def test_a_member_that_has_completed_the_round_may_be_the_odd_one() -> None:
    # GIVEN two ranks stuck with 7 elements while one has completed the round with 7, and one with 5
    job = Job(4, dp=range(4)).op(0, "dp", 61, count=7).op(2, "dp", 61, count=7)
    rows = [{"rank": r, "comm": "dp", "counter": 61, "count": n} for r, n in ((3, 5), (1, 7))]
    (one,) = contradictions(job.picture(), Completed(job, *rows))
    side = dict(zip(one.ranks, one.sides, strict=True))
    assert side[0] == side[1] == side[2] != side[3]
    # BUT what was completed alike says nothing, nor does another round
    assert not contradictions(job.picture(), Completed(job, {"rank": 1, "comm": "dp", "counter": 61, "count": 7}))
    assert not contradictions(job.picture(), Completed(job, {"rank": 1, "comm": "dp", "counter": 60, "count": 5}))


def exchange(to: list[list[int]], expect: list[list[int]], in_flight: Sequence[int] | None = None) -> Job:
    """An all-to-all: what each rank sends to each, and expects of each; some ranks have completed it."""
    job = Job(len(to), ep=range(len(to)))
    for rank in range(len(to)):
        if in_flight is None or rank in in_flight:
            job.op(rank, "ep", 3, Kind.ALL_TO_ALL, flags=Flag.UNEVEN, count=sum(to[rank]))
        job.splits(rank, "ep", 3, to[rank], expect[rank])
    return job


TO = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
EXPECT = [[1, 4, 7], [2, 5, 8], [3, 6, 9]]


def test_an_uneven_all_to_all_is_compared_pair_by_pair() -> None:
    # GIVEN what each sends is what the other expects WHEN compared THEN nothing contradicts, however uneven
    assert not sides_of(exchange(TO, EXPECT))
    # WHEN rank 1 expects other sizes of both its peers THEN it is the odd one, and the pairs are reported
    job = exchange(TO, [EXPECT[0], [20, 5, 80], EXPECT[2]])
    (one,) = contradictions(job.picture())
    assert dict(zip(one.ranks, one.sides, strict=True)) == {0: 0, 1: 1, 2: 0}
    assert [(m.src, m.dst, m.sent, m.expected) for m in one.misfits] == [(0, 1, 2, 20), (2, 1, 8, 80)]


def test_a_member_that_has_completed_an_all_to_all_of_other_sizes_is_the_odd_one_still() -> None:
    # GIVEN rank 1 is a round ahead with the sizes of another round, and only rank 0 is still in this one
    job = exchange(TO, [EXPECT[0], [20, 5, 80], EXPECT[2]], in_flight=[0])
    rows = ({"rank": r, "comm": "ep", "counter": 3, "kind": Kind.ALL_TO_ALL, "flags": Flag.UNEVEN} for r in (1, 2))
    (one,) = contradictions(job.picture(), Completed(job, *rows))
    assert dict(zip(one.ranks, one.sides, strict=True)) == {0: 0, 1: 1, 2: 0}


def test_one_pair_of_sizes_that_does_not_fit_has_two_ends() -> None:
    # GIVEN rank 2 sends to rank 0 what that does not expect WHEN compared THEN both may be wrong, and nobody else
    (sides,) = sides_of(exchange([TO[0], TO[1], [70, 8, 9]], EXPECT))
    assert sorted(sides) == [0, 2]
    assert sides[0] != sides[2]


def test_an_even_all_to_all_may_meet_one_that_says_its_sizes_for_each_member() -> None:
    # GIVEN rank 0 says "the same for all", the others say how much for each WHEN these are the same THEN they agree
    even = [[4, 4, 4]] * 3
    job = exchange(even, even)
    job._ops[0]["flags"] = 0
    job._splits[0]["splits"] = 0
    assert not sides_of(job)
    # BUT not where another sends more
    job = exchange([[4, 4, 4], [9, 4, 4], [4, 4, 4]], even)
    job._splits[0]["splits"] = 0
    assert len(sides_of(job)) == 1


def test_more_splits_than_are_kept_are_compared_as_far_as_they_go() -> None:
    # GIVEN eighty members WHEN a rank departs from what the first sixty-four expect THEN it is the odd one
    even = [[2] * 80 for _ in range(80)]
    assert not sides_of(exchange(even, even))
    even[5] = [3] * 80
    (sides,) = sides_of(exchange(even, [[2] * 80 for _ in range(80)]))
    assert {r for r, s in sides.items() if s} == {5}


# ---- who deviates ----------------------------------------------------------------------------------------------------

ITERATION = "abbcabbcdddx"


def tokens(text: str) -> Tokens:
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)


def asked(pasts: dict[int, str], sides: Sequence[int], sister: int | None = None) -> Deviation:
    ranks = list(pasts)
    return deviants(ranks, sides, lambda r: tokens(pasts[r]), lambda token: token, sister)


FAITHFUL = ITERATION * 10 + "abbc"
DEPARTED = ITERATION * 10 + "abby"
SAYS_NOTHING = "y"


def test_its_own_past_says_the_deviant_of_two() -> None:
    found = asked({4: FAITHFUL, 7: DEPARTED}, [0, 1])
    assert found.deviants == (7,)
    assert found.witnesses == (Witness.OWN_PAST,)


def test_the_majority_says_it_of_three_without_a_past() -> None:
    found = asked({4: SAYS_NOTHING, 7: SAYS_NOTHING, 9: SAYS_NOTHING}, [1, 0, 1])
    assert found.deviants == (7,)
    assert found.witnesses == (Witness.MAJORITY,)


def test_two_without_a_past_are_both_candidates() -> None:
    assert asked({4: SAYS_NOTHING, 7: SAYS_NOTHING}, [0, 1]) == Deviation((), ())


def test_communicators_of_the_same_role_say_it() -> None:
    found = asked({4: SAYS_NOTHING, 7: SAYS_NOTHING}, [0, 1], sister=0)
    assert found.deviants == (7,)
    assert found.witnesses == (Witness.SAME_ROLE,)


def test_witnesses_that_disagree_name_nobody() -> None:
    # GIVEN the majority follows the deviant
    assert asked({1: FAITHFUL, 2: DEPARTED, 3: DEPARTED}, [0, 1, 1]) == Deviation((), ())
    # AND sisters against the past
    assert asked({1: FAITHFUL, 2: DEPARTED}, [0, 1], sister=1) == Deviation((), ())


def test_witnesses_that_agree_are_all_reported() -> None:
    found = asked({1: FAITHFUL, 2: FAITHFUL, 3: DEPARTED}, [0, 0, 1], sister=0)
    assert found.deviants == (3,)
    assert len(found.witnesses) == 3


def test_what_all_did_for_the_first_time_is_the_programs_doing() -> None:
    assert asked({1: DEPARTED, 2: DEPARTED}, [0, 1]) == Deviation((), ())


def test_what_nearly_all_did_for_the_first_time_is_the_programs_doing_too() -> None:
    # GIVEN a first log line, for which one rank of six has not come
    found = asked({1: DEPARTED, 2: DEPARTED, 3: DEPARTED, 4: DEPARTED, 5: DEPARTED, 6: FAITHFUL}, [1, 1, 1, 1, 1, 0])
    assert found == Deviation((6,), (Witness.MAJORITY,))
    # SO with three of four, BUT of fewer it cannot be known
    assert asked({1: DEPARTED, 2: DEPARTED, 3: DEPARTED, 6: FAITHFUL}, [1, 1, 1, 0]) == found
    assert asked({1: DEPARTED, 2: DEPARTED, 6: FAITHFUL}, [1, 1, 0]) == Deviation((), ())


def test_a_rare_operation_is_not_held_against_the_rank_whose_past_was_lost() -> None:
    # GIVEN a log operation every five iterations; of rank 1 only the last two iterations are known
    whole = (ITERATION * 5 + "L") * 6 + ITERATION + "L"
    # WHEN it is contradicted right behind a log that only rank 2's past has seen before THEN it is not named for that
    found = asked({1: whole[-24:] + "ab", 2: whole + "ax"}, [0, 1])
    assert found.deviants != (1,)


def test_a_log_that_comes_one_iteration_early_is_not_held_against_those_that_have_seen_one() -> None:
    # GIVEN a log line every ten iterations, and rank 3 that has left an iteration out
    steps = ITERATION * 10 + "L" + ITERATION * 9
    # WHEN it comes to its second log before the others THEN it is what it does, and not they for their first one
    found = asked({1: steps + "a", 2: steps + "a", 3: steps[: -len(ITERATION)] + ITERATION + "L"}, [0, 0, 1])
    assert found.deviants == (3,)


def test_a_side_of_which_only_some_departed_is_not_named_by_it() -> None:
    assert asked({1: FAITHFUL, 2: DEPARTED, 3: FAITHFUL, 4: DEPARTED}, [0, 0, 1, 1]) == Deviation((), ())


# ---- skew ------------------------------------------------------------------------------------------------------------

TP, DP = 100, 200
COMM_OF = {ord("a"): TP, ord("b"): TP, ord("d"): DP, ord("p"): -1}
SKIPPED = Edit(ordinal=97, missing=(ord("a"),), extra=(), period=12)


def confirmed(
    edit: Edit = SKIPPED,
    since: int = 36,
    others: dict[int, tuple[list[Edit], int] | None] | None = None,
    mine: list[Edit] | None = None,
    per_iteration: Callable[[int, int], int] = lambda rank, comm: 4,
    has_passed: Callable[[int, int], bool] = lambda comm, rank: True,
) -> bool:
    known: dict[int, tuple[list[Edit], int] | None] = {
        5: (mine or [edit], 60),
        **(others or {6: ([], 120), 7: ([], 120)}),
    }
    found = confirm_skew(
        5, edit, since, lambda t: COMM_OF[t], lambda comm: [5, 6, 7], known.__getitem__, per_iteration, has_passed
    )
    return found is not None


def test_an_edit_alone_that_lasts_three_iterations_is_a_skew() -> None:
    assert confirmed()
    assert confirmed(Edit(97, (), (ord("a"),), 12))


def test_it_must_have_lasted() -> None:
    assert not confirmed(since=35)


@pytest.mark.parametrize(("missing"), [(ord("p"),), (ord("a"), ord("d"))])
def test_messages_and_edits_over_two_communicators_are_none(missing: tuple[int, ...]) -> None:
    assert not confirmed(Edit(97, missing, (), 12))


def test_what_another_member_did_too_is_the_programs_doing() -> None:
    assert not confirmed(others={6: ([], 120), 7: ([Edit(90, (ord("b"),), (), 12)], 120)})
    # BUT what it did on another communicator does not matter
    assert confirmed(others={6: ([], 120), 7: ([Edit(90, (ord("d"),), (), 12)], 120)})


def test_what_was_made_up_for_is_none() -> None:
    assert not confirmed(mine=[SKIPPED, Edit(105, (), (ord("a"),), 12)])


def test_what_recurs_is_how_the_program_is() -> None:
    assert not confirmed(mine=[SKIPPED, Edit(197, (ord("a"),), (), 12)])


@pytest.mark.parametrize("other", [None, ([], 47)])
def test_a_member_that_is_not_known_forbids_the_claim(other: tuple[list[Edit], int] | None) -> None:
    assert not confirmed(others={6: other, 7: ([], 120)})


def test_a_member_that_was_not_seen_there_yet_forbids_the_claim() -> None:
    assert not confirmed(has_passed=lambda comm, rank: rank != 7)


def test_members_that_count_differently_forbid_the_claim() -> None:
    assert not confirmed(per_iteration=lambda rank, comm: 4 if rank == 5 else 8)
    assert not confirmed(per_iteration=lambda rank, comm: 0)
