"""Loops over columns give what plain Python gives, for operations of all sorts, also for such as no agent sends."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.columns.counts import count_kinds, count_waits
from whichrank.columns.library import Struct, fields
from whichrank.columns.records import Slots, find_comms, runs_of, take_apart
from whichrank.model.codes import Flag
from whichrank.model.kinds import TRAITS, Kind, Traits
from whichrank.model.signature import PARTS, signatures
from whichrank.model.telemetry import RECORD_REPORTED

SEEDS = st.integers(0, 2**32 - 1)
MASK = (1 << 64) - 1


def rows_of(rng: np.random.Generator, n: int) -> np.ndarray[Any, Any]:
    """Rows of any bytes, of kinds and ranks that there are for the most part."""
    rows = np.frombuffer(rng.bytes(n * RECORD_REPORTED.itemsize), RECORD_REPORTED).copy()
    rows["rank"] = rng.integers(-1, 5, n)
    usual = rng.random(n) < 0.8
    rows["row"]["kind"][usual] = rng.choice([*TRAITS, Kind.STEP, Kind.WORK], n)[usual]
    return rows


def mixed(a: int, b: int) -> int:
    h = ((a ^ b) * 0x9E3779B97F4A7C15) & MASK
    return h ^ h >> 29


def signature(row: np.void) -> int:
    """By DESIGN 5.2, question 3."""
    kind, flags = int(row["kind"]), int(row["flags"])
    traits = TRAITS.get(Kind(kind), Traits()) if kind in Kind._value2member_map_ else Traits()
    named = (
        kind | (int(row["dtype"]) << 8 if traits.sized else 0) | (int(row["reduce_op"]) << 16 if traits.reduces else 0)
    )
    if traits.addressed or kind >= Kind.SEND:
        named |= (int(row["peer"]) + 1) << 24
    is_free = bool(flags & Flag.FREE_SIZES) or (traits.uneven and bool(flags & Flag.UNEVEN))
    return mixed(mixed(named & MASK, 1), 0 if is_free or not traits.sized else int(row["count"]))


@given(SEEDS, st.integers(0, 60))
def test_rows_are_taken_apart(seed: int, n: int) -> None:
    rows = rows_of(np.random.default_rng(seed), n)
    columns, others = take_apart(rows, PARTS, 3)
    signs = [signature(row) for row in rows["row"]]
    assert columns.pop("sign").tolist() == signs == signatures(rows["row"]).tolist()
    assert columns.pop("rank").tolist() == rows["rank"].tolist()
    assert columns.pop("comm_id").tolist() == rows["comm"].tolist()
    assert columns.pop("elements").tolist() == rows["row"]["count"].tolist()
    for name, column in columns.items():
        assert column.dtype == rows["row"][name].dtype
        assert column.tolist() == rows["row"][name].tolist()
    is_op = (rows["rank"] >= 0) & (rows["rank"] < 3) & (rows["row"]["kind"] < Kind.STEP)
    assert others == n - int(is_op.sum())


@given(SEEDS, st.integers(0, 40))
def test_runs_of_a_rank_are_found(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    rank = np.repeat(rng.integers(0, 4, n), rng.integers(1, 4, n))
    issue_ns = rng.integers(-(1 << 63), (1 << 63) - 1, len(rank)) if seed % 3 == 0 else rng.integers(0, 99, len(rank))
    end_ns = issue_ns + rng.integers(0, 60, len(rank))  # goes round where the clock of nobody can be
    begins = [at for at in range(len(rank)) if at == 0 or rank[at] != rank[at - 1]]
    parts = list(zip(begins, [*begins[1:], len(rank)], strict=False))
    begin, last_issue_ns, last_end_ns, longs = runs_of(rank, issue_ns, end_ns, 50)
    assert begin.tolist() == begins
    assert last_issue_ns.tolist() == [int(issue_ns[a:b].max()) for a, b in parts]
    assert last_end_ns.tolist() == [int(end_ns[a:b].max()) for a, b in parts]
    assert longs.tolist() == np.flatnonzero(end_ns - issue_ns >= 50).tolist()


def test_a_communicator_is_found_by_its_slot_only_where_it_is_there() -> None:
    # GIVEN two ranks with three slots; what a table says is no place of any column in one
    in_slot = np.array([[0, 2, -1], [1, 77, 3]], np.int32)
    table = Slots.of(
        ranks=2, slots=3, members=4, comms=2, in_slot=in_slot, comm_of=np.array([0, 0, 1, 9]),
        member_at=np.array([0, 2]), id=np.array([70, 71], np.uint64),
    )  # fmt: skip
    asked = [
        (0, 0, 70),
        (0, 1, 71),
        (1, 0, 70),
        (1, 0, 71),
        (0, 2, 70),
        (1, 1, 70),
        (1, 2, 70),
        (2, 0, 70),
        (-1, 0, 70),
        (0, 3, 70),
    ]
    rank, slot, ids = (np.array(column) for column in zip(*asked, strict=True))
    comm, place, missing = find_comms(table, rank, slot.astype(np.uint16), ids.astype(np.uint64))
    assert comm.tolist() == [0, 1, 0] + [-1] * 7
    assert place.tolist() == [0, 0, 1] + [-1] * 7
    assert missing == 7


@given(SEEDS, st.integers(0, 60))
def test_waits_and_kinds_are_counted(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    comm, kind = rng.integers(-1, 4, n), rng.integers(0, 6, n).astype(np.uint8)
    wait_us = (2 ** rng.uniform(0, 32, n)).astype(np.uint32)
    counts, total, kinds = np.zeros((3, 40), np.float32), np.zeros(3), np.zeros((3, 5), np.uint32)
    count_waits(comm, wait_us, counts, total)
    count_kinds(comm, kind, kinds)
    known = [(c, w, k) for c, w, k in zip(comm.tolist(), wait_us.tolist(), kind.tolist(), strict=True) if 0 <= c < 3]
    assert total.tolist() == [sum(c == of for c, _, _ in known) for of in range(3)]
    # Halves of octaves, but for what a float cannot hold.
    octaves = Counter((c, min(math.floor(2 * math.log2(float(np.float32(w) + 1))), 39)) for c, w, _ in known)
    for (of, place), count in octaves.items():
        assert counts[of, max(place - 1, 0) : place + 2].sum() >= count
    assert counts.sum() == len(known)
    by_kind = Counter((c, k) for c, _, k in known if k < 5)
    assert {(c, k): int(kinds[c, k]) for c, k in np.argwhere(kinds).tolist()} == dict(by_kind)


def test_bins_of_waits_end_where_they_should() -> None:
    counts, total = np.zeros((1, 64), np.float32), np.zeros(1)
    count_waits(np.zeros(5, np.int64), np.array([0, 1, 3, 1000, 2**32 - 1], np.uint32), counts, total)
    assert np.flatnonzero(counts[0]).tolist() == [0, 2, 4, 19, 63]


def test_columns_of_another_type_or_with_gaps_are_refused() -> None:
    class One(Struct):
        _fields_, COLUMNS = fields(count=None, values="i4")

    One.of(count=2, values=np.zeros(2, np.int32))
    for wrong in (np.zeros(2, np.int64), np.zeros(4, np.int32)[::2]):
        with pytest.raises(TypeError, match="int32"):
            One.of(count=2, values=wrong)
