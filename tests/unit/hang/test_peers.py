"""Silent skew, reported by ranks in the same position, before any period is known."""

from __future__ import annotations

import numpy as np
import pytest
from batches import comm_info, records

from whichrank.hang.peers import Peers
from whichrank.hang.skews import Skews
from whichrank.locate.signatures import Skew
from whichrank.model.clause import Witness
from whichrank.store.sequences import Sequences

TP01, TP23, DP02, DP13, LOG = range(5)
INFO = [
    comm_info(1, [0, 1], "mesh_tp"),
    comm_info(2, [2, 3], "mesh_tp"),
    comm_info(3, [0, 2], "mesh_dp"),
    comm_info(4, [1, 3], "mesh_dp"),
    comm_info(5, [0, 1, 2, 3], "default_pg"),
]
TP = {0: TP01, 1: TP01, 2: TP23, 3: TP23}
DP = {0: DP02, 1: DP13, 2: DP02, 3: DP13}
RANKS = range(4)


class Reported:
    """Every rank is as far as it is known."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def frontier(self, comm: int, rank: int) -> tuple[int, int]:
        return 1 << 20, 1 << 20

    def ordinal(self, rank: int) -> int:
        return self._job.ordinal[rank]

    def dealt_with_failure(self, ranks: list[int]) -> bool:
        return False


class Job:
    """TP2 x DP2: tensor-parallel operations of one signature, then a gradient reduction; now and then a log."""

    def __init__(self, ranks: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        self.sequences = Sequences()
        self.sequences.add_comms(INFO)
        self.own = Skews(self.sequences, Reported(self))
        self.peers = Peers(self.own)
        self.ordinal = dict.fromkeys(ranks, 0)
        self.now_s = 100.0

    def issue(self, rank: int, comms: list[int]) -> None:
        rows = records(rank, 0, 1, len(comms), ordinal=self.ordinal[rank] + 1)["row"]
        self.ordinal[rank] += len(comms)
        self.sequences.feed(np.full(len(comms), rank), np.array(comms), rows)

    def iterate(self, count: int, odd: int = -1, shift: int = 0, log: bool = False) -> None:
        """All ranks; in the last iteration one leaves out (or repeats) tensor-parallel operations."""
        for number in range(count):
            last = number == count - 1
            for rank in self.ordinal:
                n = 8 + (shift if last and rank == odd else 0)
                self.issue(rank, [TP[rank]] * n + [DP[rank]] + ([LOG] if last and log else []))

    def leave(self, odd: int, then: int = 8) -> None:
        """One rank leaves an operation out, and all go on."""
        self.iterate(1, odd=odd, shift=-1)
        self.iterate(then)

    def skews(self) -> list[Skew]:
        self.now_s += 100.0
        self.peers.watch([TP01, TP23], self.now_s)
        return self.peers.skews(self.now_s)


@pytest.mark.parametrize("shift", [-1, 1, -2])
@pytest.mark.parametrize("odd", RANKS)
def test_the_odd_one_is_named_once_it_has_lasted(odd: int, shift: int) -> None:
    # GIVEN a job in its second iteration, a log line beside the fault
    job = Job()
    job.iterate(2, log=True)
    job.iterate(1, odd=odd, shift=shift)
    assert not job.skews()
    # WHEN it goes on
    job.iterate(8)
    (skew,) = job.skews()
    # THEN the rank and the communicator are reported, with the witness, and only once
    assert (skew.rank, skew.witness) == (odd, Witness.SAME_POSITION)
    assert job.sequences.comm_of_key(skew.comm_key) == TP[odd]
    assert len(skew.edit.missing) - len(skew.edit.extra) == -shift
    job.iterate(8)
    assert not job.skews()


def test_the_other_member_may_be_blocked_by_the_skew() -> None:
    # GIVEN rank 3 left an operation out, and rank 2, its peer there, is some operations behind all others
    job = Job()
    job.iterate(4)
    job.leave(3)
    for rank in (0, 1, 3):
        job.issue(rank, [TP[rank]] * 6)
    (skew,) = job.skews()
    assert skew.rank == 3
    # BUT that it has not even come to the place says nothing
    late = Job()
    late.iterate(4)
    late.ordinal = {rank: n for rank, n in late.ordinal.items() if rank != 2}
    late.leave(3)
    assert not late.skews()


def test_a_second_skew_of_the_same_rank_is_reported_too() -> None:
    job = Job()
    job.iterate(4)
    for _ in range(2):
        job.leave(3)
        (skew,) = job.skews()
        assert skew.rank == 3


def test_both_witnesses_say_a_skew_once() -> None:
    # GIVEN a skew that the peers have reported
    job = Job()
    job.iterate(8)
    job.leave(2)
    (skew,) = job.skews()

    # THEN the rank's own past has nothing to add
    assert job.sequences.sequence(2).edits
    assert not job.own.lasting()
    assert not job.own.report(skew)


def test_what_a_whole_group_does_is_the_program() -> None:
    # GIVEN ranks 2 and 3 both do one operation more on their group
    job = Job()
    job.iterate(4)
    for rank in job.ordinal:
        job.issue(rank, [TP[rank]] * (9 if rank >= 2 else 8) + [DP[rank]])
    job.iterate(10)
    assert not job.skews()


def test_without_a_majority_nobody_is_named() -> None:
    job = Job((2, 3))
    job.iterate(4)
    job.leave(3, then=10)
    assert not job.skews()


def test_a_loss_in_one_rank_does_not_hide_the_others() -> None:
    job = Job()
    job.iterate(20)
    # WHEN rank 1 loses records, and rank 3 leaves an operation out
    job.sequences.sequence(1).lose(job.ordinal[1] + 5)
    job.ordinal[1] += 5
    for rank in (0, 2, 3):
        job.issue(rank, [TP[rank]] * 5)
    job.iterate(3)
    job.leave(3)
    assert [s.rank for s in job.skews()] == [3]
