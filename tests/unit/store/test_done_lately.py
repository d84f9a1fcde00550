"""The operations completed last, however they come: what is kept is the end of what has come, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from whichrank.columns.rounds import Rounds, hold_rounds
from whichrank.model.codes import Status
from whichrank.model.kinds import Kind
from whichrank.store import done_lately
from whichrank.store.done_lately import DoneLately

LIMIT = 50


@given(st.lists(st.integers(0, 2 * LIMIT), max_size=12), st.lists(st.integers(1, 2), min_size=12, max_size=12))
def test_of_each_round_what_came_last_is_known(sizes: list[int], ranks: list[int]) -> None:
    # GIVEN batches of any size, of a job that gets larger
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(done_lately, "_AT_FIRST", 8)
        patch.setattr(done_lately, "KEPT_OF_A_RANK", LIMIT // 2)
        patch.setattr(done_lately, "MOST_KEPT", LIMIT)
        kept, came, most = DoneLately(), 0, 0
        for size, job in zip(sizes, ranks, strict=False):
            most = max(most, job)
            write(kept, np.arange(came, came + size), most)
            came += size

            # THEN the last of them are there, as many as there is room for
            known = [one for round_ in range(1, came // 5 + 2) for one in kept.of(1, round_)[2].tolist()]
            room = min(LIMIT, most * (LIMIT // 2))
            assert sorted(known) == list(range(came - len(known), came))
            assert min(size, room) <= len(known) <= room
        for round_ in range(1, came // 5 + 2):
            members, signs, ordinals = kept.of(1, round_)
            assert (members == ordinals % 5).all()
            assert (signs == 3 * ordinals).all()
            assert not len(kept.of(2, round_)[0])
        kept.forget()
        assert not len(kept.of(1, 1)[0])


def write(kept: DoneLately, number: NDArray[np.int64], ranks: int) -> None:
    """Write operations of five members of communicator 1, one after the other, with their number as ordinal."""
    n = len(number)
    table = Rounds.of(
        comms=2, slots=16, members=7, ranks=5, seen_size=1, size=np.array([2, 5]), last=np.full(2, 7, np.uint32),
        slot_at=np.array([0, 8]), member_at=np.array([0, 2]), lowest=np.zeros(2, np.uint32), offset_s=np.zeros(5),
        first=np.zeros(16, np.uint64), first_ordinal=np.zeros(16, np.uint32), first_end_s=np.zeros(16),
        behind=np.zeros(7, np.int32), behind_since=np.zeros(7, np.uint32), seen=np.zeros(1, np.uint32), steady=8,
    )  # fmt: skip
    lately = kept.room_for(n, ranks)
    news = hold_rounds(
        table, lately, rank=number % 5, comm=np.ones(n, np.int64), place=number % 5,
        counter=(1 + number // 5).astype(np.uint32), ordinal=number.astype(np.uint32),
        sign=(3 * number).astype(np.uint64) << np.uint64(32), end_ns=np.zeros(n, np.uint64),
        kind=np.full(n, Kind.ALL_REDUCE, np.uint8), status=np.full(n, Status.DONE, np.uint8),
    )  # fmt: skip
    assert news.taken == n
    kept.written(lately, news.taken)
