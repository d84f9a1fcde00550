"""What ranks issued, over losses and restarts, and the skews that it shows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from batches import comm_info, records

from whichrank.hang.skews import Skews
from whichrank.model.telemetry import CommInfo
from whichrank.store.rounds import Rounds
from whichrank.store.sequences import Issued, Sequences

TP, DP = 0, 1
INFO = [comm_info(7, [0, 1], "mesh_tp"), comm_info(8, [0, 1], "mesh_dp")]
PROGRAM = [TP] * 6 + [DP]


class Reported:
    """How far each rank is: what it has issued, unless something else is said."""

    def __init__(self) -> None:
        self.counters: dict[tuple[int, int], tuple[int, int]] = {}
        self.ordinals: dict[int, int] = {}
        self.done: Counter[tuple[int, int]] = Counter()
        self.dealt = False

    def frontier(self, comm: int, rank: int) -> tuple[int, int]:
        n = self.done[comm, rank]
        return self.counters.get((comm, rank), (n, n))

    def ordinal(self, rank: int) -> int:
        return self.ordinals.get(rank, sum(n for (_, of), n in self.done.items() if of == rank))

    def dealt_with_failure(self, ranks: list[int]) -> bool:
        return self.dealt


def sequences(info: list[CommInfo] | None = None) -> Sequences:
    made = Sequences()
    made.add_comms(info or INFO)
    return made


class Rank:
    """Issues operations and remembers how many."""

    def __init__(self, of: Sequences, rank: int, reported: Reported | None = None) -> None:
        self.of, self.rank, self.ordinal, self.reported = of, rank, 0, reported or Reported()

    def issues(self, comms: list[int], lost: bool = False, count: int = 0) -> Rank:
        rows = records(self.rank, 0, 1, len(comms), ordinal=self.ordinal + 1)["row"]
        if count:
            rows["count"][0] = count
        self.ordinal += len(comms)
        self.reported.done.update((comm, self.rank) for comm in comms)
        if lost:
            self.of.sequence(self.rank).expect_loss()
        else:
            self.of.feed(np.full(len(comms), self.rank), np.array(comms), rows)
        return self


def iterate(times: int, *ranks: Rank) -> None:
    for _ in range(times):
        for rank in ranks:
            rank.issues(PROGRAM)


def after(iterations: int) -> tuple[Skews, Reported, Rank, Rank]:
    """Two ranks of a group that have done so many iterations together."""
    h, reported = sequences(), Reported()
    zero, one = Rank(h, 0, reported), Rank(h, 1, reported)
    iterate(iterations, zero, one)
    return Skews(h, reported), reported, zero, one


def test_a_skipped_operation_of_equal_shape_is_a_skew_within_three_iterations() -> None:
    # GIVEN two ranks of which the second leaves one tensor-parallel operation out, in iteration 9
    skews, _, zero, one = after(8)
    zero.issues(PROGRAM)
    one.issues(PROGRAM[1:])
    assert not skews.lasting()
    # WHEN three more iterations are done
    for _ in range(3):
        assert not skews.lasting()
        iterate(1, zero, one)
    # THEN it is named, once
    (skew,) = skews.lasting()
    assert (skew.rank, skews.sequences.comm_of_key(skew.comm_key), skew.iterations_since) == (1, TP, 3)
    assert len(skew.edit.missing) == 1
    assert not skews.lasting()


def test_where_a_failure_was_dealt_with_nothing_is_claimed() -> None:
    skews, reported, zero, one = after(8)
    zero.issues(PROGRAM)
    one.issues(PROGRAM[1:])
    iterate(4, zero, one)
    reported.dealt = True
    assert not skews.lasting()
    reported.dealt = False
    assert skews.lasting(), "nothing was noted before"


def test_a_log_line_that_both_write_hides_no_skew() -> None:
    # GIVEN both members write a log line on their group, and the second leaves an operation out a moment later
    skews, _, zero, one = after(8)
    zero.issues([TP, TP, *PROGRAM]).issues(PROGRAM * 2)
    one.issues([TP, TP, *PROGRAM]).issues(PROGRAM).issues(PROGRAM[1:])
    # WHEN three more iterations are done THEN it is named
    iterate(3, zero, one)
    (skew,) = skews.lasting()
    assert (skew.rank, skews.sequences.comm_of_key(skew.comm_key), len(skew.edit.missing)) == (1, TP, 1)


def test_a_log_line_of_the_other_that_was_elsewhere_forbids_the_claim() -> None:
    # GIVEN one member writes its log lines in other iterations than the other
    skews, _, zero, one = after(8)
    zero.issues([TP, TP, *PROGRAM]).issues(PROGRAM * 6).issues(PROGRAM)
    one.issues(PROGRAM * 6).issues([TP, TP, *PROGRAM]).issues(PROGRAM[1:])
    iterate(3, zero, one)
    assert not skews.lasting()


def test_a_repeated_operation_too() -> None:
    skews, _, zero, one = after(8)
    one.issues([TP])
    iterate(4, zero, one)
    zero.issues([TP])  # what the other has completed it has entered
    (skew,) = skews.lasting()
    assert skew.rank == 1
    assert len(skew.edit.extra) == 1


def test_what_the_other_member_did_too_but_was_not_reported_yet_is_no_skew() -> None:
    # GIVEN the program leaves an operation out in iteration 9; rank 0's agent is thirty iterations behind
    skews, reported, zero, one = after(8)
    one.issues(PROGRAM[1:])
    for _ in range(30):
        one.issues(PROGRAM)
    reported.counters = {(TP, 0): (48, 48), (TP, 1): (48 + 5 + 180, 48 + 5 + 180)}
    # THEN nothing is claimed while it was not seen there
    assert not skews.lasting()
    zero.issues(PROGRAM[1:])
    for n in range(30):
        zero.issues(PROGRAM)
        reported.counters[TP, 0] = (48 + 5 + 6 * (n + 1),) * 2
        assert not skews.lasting()


def test_what_was_reported_of_a_member_but_not_read_yet_forbids_the_claim() -> None:
    # GIVEN a skew of rank 1; of rank 0 it is known how far it is, but its records lag behind
    skews, reported, zero, one = after(8)
    zero.issues(PROGRAM)
    one.issues(PROGRAM[1:])
    iterate(4, zero, one)
    reported.ordinals = {0: zero.ordinal + 70}
    assert not skews.lasting()
    reported.ordinals = {0: zero.ordinal}
    assert skews.lasting()


def test_records_that_came_without_states_do_not_say_how_far_the_others_would_have_to_be() -> None:
    # GIVEN both repeat an operation; rank 0 is silent since before, and rank 1's records have come without its states
    skews, reported, _, one = after(8)
    reported.counters = {(TP, 0): (48, 48), (TP, 1): (48, 48)}
    reported.ordinals = {0: one.ordinal, 1: one.ordinal}
    one.issues([TP])
    for _ in range(4):
        one.issues(PROGRAM)  # more than an iteration: a batch's records may be a little newer than its states
    # THEN it is not taken for granted that rank 0 has been there
    assert not skews.lasting()
    # WHEN the states have come, it is seen that it has not
    reported.counters[TP, 1] = (48 + 1 + 24,) * 2
    reported.ordinals[1] = one.ordinal
    assert not skews.lasting()


def test_skew_is_found_on_groups_that_were_made_again() -> None:
    # GIVEN the groups are destroyed and made again with the same names and members
    again = [comm_info(9, [0, 1], "mesh_tp", "g7"), comm_info(10, [0, 1], "mesh_dp", "g8")]
    h, reported = sequences([*INFO, *again]), Reported()
    zero, one = Rank(h, 0, reported), Rank(h, 1, reported)
    skews = Skews(h, reported)
    iterate(8, zero, one)
    renamed = [c + 2 for c in PROGRAM]
    zero.issues(renamed)
    one.issues(renamed[1:])
    for _ in range(4):
        zero.issues(renamed)
        one.issues(renamed)
    (skew,) = skews.lasting()
    # THEN the past still counts, and the group that is named is the new one
    assert (skew.rank, skews.sequences.comm_of_key(skew.comm_key)) == (1, 2)


def test_a_lossy_ring_makes_no_skew() -> None:
    # GIVEN records of rank 1 are lost, a number that is no multiple of its iteration
    skews, _, zero, one = after(8)
    zero.issues(PROGRAM * 3)
    one.issues((PROGRAM * 4)[: 3 * len(PROGRAM) + 2], lost=True)
    iterate(30, zero, one)
    assert not skews.lasting()
    assert skews.sequences.sequence(1).last_ordinal == one.ordinal


def test_what_a_member_did_in_the_part_that_was_lost_is_not_known() -> None:
    # GIVEN the program has one operation more in iteration 9; of rank 0 that part was lost
    h, reported = sequences(), Reported()
    zero, one = Rank(h, 0, reported), Rank(h, 1, reported)
    skews = Skews(h, reported)
    zero.issues(PROGRAM * 8)
    one.issues(PROGRAM * 8)
    zero.issues([TP, *PROGRAM, *PROGRAM], lost=True)
    one.issues([TP, *PROGRAM, *PROGRAM])
    # THEN that rank 1 alone is seen to have it says nothing
    for _ in range(50):
        iterate(1, zero, one)
        assert not skews.lasting()


def test_a_process_that_was_replaced_has_no_past() -> None:
    h = sequences()
    Rank(h, 0).issues(PROGRAM * 9)
    h.forget(0)
    again = Rank(h, 0).issues(PROGRAM * 3)
    assert h.sequence(0).last_ordinal == again.ordinal


@pytest.mark.parametrize(("ordinal", "length"), [(21, 21), (5, 5), (22, 0), (0, 0)])
def test_the_past_up_to_an_operation(ordinal: int, length: int) -> None:
    h = sequences()
    Rank(h, 0).issues(PROGRAM * 3)
    assert len(h.up_to(0, ordinal)) == length


def test_a_short_past_behind_a_loss_says_nothing() -> None:
    h = sequences()
    zero = Rank(h, 0).issues(PROGRAM * 9)
    zero.ordinal += 100
    h.sequence(0).expect_loss()
    zero.issues(PROGRAM * 20)
    assert not len(h.up_to(0, zero.ordinal))
    zero.issues(PROGRAM * 60)
    assert len(h.up_to(0, zero.ordinal)) == 80 * len(PROGRAM)


def test_members_of_sister_groups_share_shapes_not_tokens() -> None:
    h = sequences([comm_info(7, [0, 1], "mesh_tp"), comm_info(8, [2, 3], "mesh_tp"), comm_info(9, [0, 1], "mesh_dp")])
    rows = records(0, 0, 1, 3)["row"]
    comm = np.array([0, 1, 2])
    h.feed(np.array([0, 2, 0]), comm, rows)
    a, b, c = h.tokens_of(Issued(rows["peer"], comm, rows)).tolist()
    assert len({a, b, c}) == 3
    assert h.shape_of(a) == h.shape_of(b) != h.shape_of(c)


def test_rounds_start_empty() -> None:
    assert Rounds()._suspects == {}


@pytest.mark.parametrize("program", [[TP, DP], PROGRAM])
@pytest.mark.parametrize("after", [4, 40])
def test_two_operations_in_the_other_order_are_no_skew(program: list[int], after: int) -> None:
    # GIVEN two ranks of which the second once does its last two operations in the other order
    h, reported = sequences(), Reported()
    zero, one = Rank(h, 0, reported), Rank(h, 1, reported)
    skews = Skews(h, reported)
    for _ in range(30):
        zero.issues(program)
        one.issues(program)
    zero.issues(program)
    one.issues([*program[:-2], program[-1], program[-2]])
    # THEN nothing is claimed, however late it is asked
    for _ in range(after):
        zero.issues(program)
        one.issues(program)
    assert not skews.lasting()


@pytest.mark.parametrize("program", [[DP], [TP, DP], [TP, TP, DP]])
def test_an_operation_that_was_another_one_once_is_no_skew(program: list[int]) -> None:
    # GIVEN two ranks of which the second once issues an operation of another size, and as many as the other
    skews, _, zero, one = after(0)
    for _ in range(12):
        zero.issues(program)
        one.issues(program)
    zero.issues(program)
    one.issues(program, count=700)
    # THEN it is not claimed, at any time after, that it issued too many or too few
    for _ in range(12):
        zero.issues(program)
        one.issues(program)
        assert not skews.lasting()
    # BUT what it leaves out later is found all the same, where an iteration has other operations
    if len(program) > 2:
        zero.issues(program)
        one.issues(program[1:])
        for _ in range(4):
            zero.issues(program)
            one.issues(program)
        (skew,) = skews.lasting()
        assert (skew.rank, len(skew.edit.missing), len(skew.edit.extra)) == (1, 1, 0)
