"""The operations completed last, however they come: what is kept is the end of what has come, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
            number = np.arange(came, came + size)
            member, sign = number % 5, (3 * number).astype(np.uint32)
            most = max(most, job)
            counter = (number // 5).astype(np.uint32)
            kept.keep(most, np.full(size, 1), member, counter, sign, number.astype(np.uint32))
            came += size

            # THEN the last of them are there, as many as there is room for
            known = [one for round_ in range(came // 5 + 1) for one in kept.of(1, round_)[2].tolist()]
            room = min(LIMIT, most * (LIMIT // 2))
            assert sorted(known) == list(range(came - len(known), came))
            assert min(size, room) <= len(known) <= room
        for round_ in range(came // 5 + 1):
            members, signs, ordinals = kept.of(1, round_)
            assert (members == ordinals % 5).all()
            assert (signs == 3 * ordinals).all()
            assert not len(kept.of(2, round_)[0])
        kept.forget()
        assert not len(kept.of(1, 0)[0])
