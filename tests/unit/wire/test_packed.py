"""Records that are packed come back as they were, but for the low bits of their clocks."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.model.telemetry import RECORD_REPORTED
from whichrank.wire.packed import CLOCK_BITS, pack, unpack

CLOCKS = ("t_issue_ns", "t_start_ns", "t_end_ns")


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_any_rows_come_back(count: int) -> None:
    # GIVEN rows of any bytes
    rows = np.frombuffer(np.random.default_rng(count).bytes(count * RECORD_REPORTED.itemsize), RECORD_REPORTED).copy()
    back = np.frombuffer(unpack(pack(rows.tobytes())), RECORD_REPORTED)
    # THEN clocks are less than 4,096 ns early, and all else is the same
    for name in CLOCKS:
        early = rows["row"][name] - back["row"][name]
        assert (early < 1 << CLOCK_BITS).all()
        rows["row"][name] -= early
    assert rows.tobytes() == back.tobytes()


def test_clocks_keep_their_order() -> None:
    rows = np.zeros(1000, RECORD_REPORTED)
    steps = np.random.default_rng(0).integers(0, 9000, 3000).astype(np.uint64)
    clocks = (np.uint64(10**15) + np.cumsum(steps)).reshape(-1, 3)
    for place, name in enumerate(CLOCKS):
        rows["row"][name] = clocks[:, place]
    back = np.frombuffer(unpack(pack(rows.tobytes())), RECORD_REPORTED)["row"]
    assert (np.diff(np.stack([back[name] for name in CLOCKS], axis=1).reshape(-1).astype(np.int64)) >= 0).all()


def test_rows_of_a_loop_become_small() -> None:
    rows = np.zeros(4096, RECORD_REPORTED)
    place = np.arange(4096)
    rows["rank"], rows["comm"] = 3, np.array([7, 7, 1 << 60])[place % 3]
    rows["row"]["ordinal"] = rows["row"]["counter"] = place
    assert len(pack(rows.tobytes())) < rows.nbytes / 100
