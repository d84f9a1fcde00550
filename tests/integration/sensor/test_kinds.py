"""Each kind of operation is counted and described, and both sensors say the same of the same program."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jobs import VARIANTS, Ring, finished, flags, text

from whichrank.model.codes import Flag, SensorState
from whichrank.model.kinds import Kind

pytestmark = pytest.mark.integration

RANKS = 4
SUM, PRODUCT, MIN, MAX, BOR, NO_OP = 0, 2, 3, 4, 6, 255
FLOAT, DOUBLE, BFLOAT16, LONG, BYTE = 6, 7, 15, 4, 0


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory, nursery: Path) -> Any:
    @cache
    def of(variant: str) -> list[Ring]:
        return finished("kinds", RANKS, tmp_path_factory.mktemp(variant), variant, nursery)

    return of


@pytest.mark.parametrize("variant", VARIANTS)
def test_groups_are_named_and_have_their_members(rings: Any, variant: str) -> None:
    observed = rings(variant)
    assert [ring.rank for ring in observed] == [0, 1, 2, 3]
    names = {ring.rank: {name: ring.members(comm) for name, comm in ring.comms.items()} for ring in observed}
    rows, columns = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    for rank in range(RANKS):
        expected = {"default_pg": [0, 1, 2, 3], "mesh_tp": rows[rank // 2], "mesh_dp": columns[rank % 2]}
        expected |= {"ODD": [1, 3]} if rank in (1, 3) else {}
        expected |= {"UNEVEN": [0, 1, 3]} if rank in (0, 1, 3) else {}
        expected |= {"UNUSED": [0, 2]} if rank in (0, 2) else {}  # seen although it was never used
        assert names[rank] == expected
    for ring in observed:
        for comm in ring.live():
            assert ring.members(comm)[int(comm["group_rank"])] == ring.rank
            assert text(comm["backend"]) == "gloo"
            assert comm["timeout_ms"] == 1_800_000


@pytest.mark.parametrize("variant", VARIANTS)
def test_identity_is_equal_on_all_members(rings: Any, variant: str) -> None:
    by_group: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    for ring in rings(variant):
        for comm in ring.live():
            key = (text(comm["name"]), tuple(ring.members(comm)))
            by_group.setdefault(key, set()).add(int(comm["comm_id"]))
    assert all(len(ids) == 1 for ids in by_group.values())
    assert len({next(iter(ids)) for ids in by_group.values()}) == len(by_group)


@pytest.mark.parametrize("variant", VARIANTS)
def test_everything_issued_is_complete_and_nothing_stays_behind(rings: Any, variant: str) -> None:
    for ring in rings(variant):
        assert ring.in_flight == []
        assert ring.waits == []
        assert ring.raw["inflight_used"] == 0
        for counter in (*ring.live(), *ring.pairs):
            assert counter["issued"] == counter["done"] == counter["completed"]
        dropped = [int(ring.header[name]) for name in ring.header.dtype.names if name.startswith("dropped")]
        assert dropped == [0, 0, int(ring.header["dropped_inflight"]), 0, 0, 0]
        if ring.rank != 3:  # 100 in flight at once are more than there are rows
            assert ring.header["dropped_inflight"] == 36
        assert ring.header["head"] == ring.header["ordinal"]
        assert ring.header["first_failure_ns"] == 0
        wanted = SensorState.ON if variant == "cpp" else SensorState.FALLBACK
        assert ring.header["sensor"][0]["state"] == wanted


@pytest.mark.parametrize("variant", VARIANTS)
def test_operations_are_described(rings: Any, variant: str) -> None:
    for ring in rings(variant):
        rank = ring.rank

        def of(kind: Kind, count: int | None = None, ring: Ring = ring) -> list[tuple[int, int, int]]:
            rows = [row for row in ring.of_kind(kind) if count is None or row["count"] == count]
            return [(int(row["dtype"]), int(row["reduce_op"]), int(row["peer"])) for row in rows]

        # Sums by count 6 in the order of the program, then the ones whose counts are their own.
        all_reduces = [(FLOAT, SUM, -1), (DOUBLE, MAX, -1), (BFLOAT16, PRODUCT, -1), (LONG, BOR, -1)]
        assert of(Kind.ALL_REDUCE, 6) == all_reduces
        assert of(Kind.BROADCAST, 6) == [(FLOAT, NO_OP, 2)]
        assert of(Kind.REDUCE) == [(FLOAT, MIN, 3)]
        assert of(Kind.GATHER) == [(FLOAT, NO_OP, 1)]
        assert of(Kind.SCATTER) == [(FLOAT, NO_OP, 2)]
        assert [int(row["count"]) for row in ring.of_kind(Kind.SCATTER)] == [5]
        assert of(Kind.REDUCE_SCATTER) == [(FLOAT, SUM, -1)] * 2
        assert [int(row["count"]) for row in ring.of_kind(Kind.REDUCE_SCATTER)] == [8, 12]
        assert [bool(flags(row) & Flag.UNEVEN) for row in ring.of_kind(Kind.ALL_TO_ALL)] == [False, True]
        assert [int(row["count"]) for row in ring.of_kind(Kind.ALL_TO_ALL)] == [8, 4 * (rank + 1)]
        assert len(ring.of_kind(Kind.BARRIER)) == 2
        assert len(ring.of_kind(Kind.MONITORED_BARRIER)) == 1
        assert of(Kind.ALL_REDUCE_COALESCED, 5) == [(FLOAT, SUM, -1)]
        assert of(Kind.ALL_REDUCE, 7) == ([(FLOAT, SUM, -1)] if rank in (1, 3) else [])
        # Roots are group ranks: rank 3 is the third of [0, 1, 3].
        assert of(Kind.BROADCAST, 9) == ([(FLOAT, NO_OP, 2)] if rank in (0, 1, 3) else [])
        assert len(of(Kind.ALL_REDUCE, 4)) == 2
        assert len(of(Kind.ALL_REDUCE, 11)) == 1
        assert len(of(Kind.ALL_REDUCE, 17)) == 1
        assert len(of(Kind.ALL_REDUCE, 2)) == 100
        async_ones = [bool(flags(row) & Flag.ASYNC) for row in ring.of_kind(Kind.ALL_REDUCE) if row["count"] == 2]
        assert all(async_ones)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sends_count_by_pair_and_tag(rings: Any, variant: str) -> None:
    for ring in rings(variant):
        rank, right, left = ring.rank, (ring.rank + 1) % RANKS, (ring.rank - 1) % RANKS
        expected = Counter({(Kind.SEND, right, 5): 1, (Kind.RECV, left, 5): 1})
        expected += Counter({(Kind.SEND, right, 0): 1, (Kind.RECV, left, 0): 1})
        expected += Counter({(Kind.RECV_ANY, -1, 0): RANKS - 1} if rank == 0 else {(Kind.SEND, 0, 0): 1})
        found = {(int(row["kind"]), int(row["peer"]), int(row["tag"])): int(row["issued"]) for row in ring.pairs}
        assert found == dict(expected)
        for row in ring.of_kind(Kind.SEND) + ring.of_kind(Kind.RECV):
            assert flags(row) & Flag.END_INFERRED


def reported(ring: Ring) -> dict[str, Any]:
    """What a ring says, without times and without what tells the sensors apart: how they learn of an end."""
    counters = ("group_rank", "generation", "issued", "done", "completed", "timeout_ms")
    comms = [
        (int(c["comm_id"]), text(c["name"]), text(c["desc"]), *ring.members(c), *(int(c[name]) for name in counters))
        for c in ring.seen()
    ]
    names = ("comm_slot", "kind", "counter", "ordinal", "dtype", "reduce_op", "peer", "count", "status")
    own = Flag.FALLBACK | Flag.UNTRACKED | Flag.END_INFERRED
    records = [(*(int(row[name]) for name in names), int(flags(row) & ~own)) for row in ring.records]
    pairs = sorted((int(p["comm_slot"]), int(p["kind"]), int(p["peer"]), int(p["tag"])) for p in ring.pairs)
    return {"comms": comms, "records": records, "pairs": pairs}


def test_both_sensors_say_the_same(rings: Any) -> None:
    for by_cpp, by_python in zip(rings("cpp"), rings("python"), strict=True):
        one, other = reported(by_cpp), reported(by_python)
        assert one["comms"] == other["comms"]
        assert one["pairs"] == other["pairs"]
        assert one["records"] == other["records"]
