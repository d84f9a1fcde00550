"""Completed operations as columns: the same as their rows, however often some are taken of them."""

from __future__ import annotations

import numpy as np
import pytest
from batches import comm_info, records

from whichrank.model.kinds import Kind
from whichrank.model.signature import signatures
from whichrank.model.telemetry import COMM_ROW, RECORD_REPORTED
from whichrank.store.communicators import Communicators
from whichrank.store.completed import no_operations
from whichrank.store.op_kinds import OpKinds
from whichrank.store.rank_columns import RankColumns
from whichrank.store.reported import Reported

RANKS = 8


def job(rng: np.random.Generator) -> tuple[Communicators, RankColumns, dict[tuple[int, int], int]]:
    """Communicators of a job, the slots of which are taken again now and then; and where each rank has which."""
    ranks, comms = RankColumns(), Communicators()
    ranks.grow(RANKS)
    slots = dict[tuple[int, int], int]()
    for comm_id in range(1, 13):
        members = np.sort(rng.permutation(RANKS)[: rng.integers(2, RANKS + 1)]).tolist()
        comms.add([comm_info(comm_id, members)], ranks)
        rows = np.zeros(len(members), COMM_ROW)
        rows["rank"], rows["group_rank"], rows["comm_id"] = members, np.arange(len(members)), comm_id
        rows["slot"] = rng.integers(0, 4, len(members)) if comm_id < 12 else 300  # more than a ring has
        comms.take(rows, ranks)
        slots |= {(rank, comm_id): slot for rank, slot in zip(members, rows["slot"].tolist(), strict=True)}
    return comms, ranks, slots


@pytest.mark.parametrize("seed", range(6))
def test_communicators_by_slot_are_those_by_id(seed: int) -> None:
    # GIVEN operations on communicators whose slots are right, of another by now, or of nobody's
    rng = np.random.default_rng(seed)
    comms, _, slots = job(rng)
    ids = rng.integers(1, 15, 200).astype(np.uint64)
    rank = rng.integers(-1, RANKS + 2, 200)
    slot = np.array([slots.get((r, c), 7) for r, c in zip(rank.tolist(), ids.tolist(), strict=True)])
    slot = np.where(rng.random(200) < 0.2, rng.integers(0, 1000, 200), slot).astype(np.uint16)
    # THEN each is found as it is by searching
    comm, place = comms.of_ops(rank, slot, ids)
    assert comm.tolist() == comms.index(ids).tolist()
    assert place.tolist() == comms.group_ranks(comm, rank).tolist()
    # AND so it is once ranks are forgotten
    comms.forget(np.array([1, 5]))
    comm, place = comms.of_ops(rank, slot, ids)
    assert place.tolist() == comms.group_ranks(comm, rank).tolist()


def test_columns_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(1)
    comms, ranks, _ = job(rng)
    rows = np.concatenate([records(r, 1 + r % 3, 1, 30, ordinal=1 + 30 * r) for r in range(RANKS)]).copy()
    rows["row"]["kind"] = rng.choice(
        [Kind.ALL_REDUCE, Kind.SEND, Kind.STEP, Kind.WORK, Kind.PASS, Kind.BARRIER], len(rows)
    )
    rows["row"]["peer"], rows["row"]["count"] = rng.integers(-1, 5, len(rows)), rng.integers(0, 99, len(rows))
    rows["rank"][::17] = -1
    done, steps, given, passes = Reported(ranks, comms).completed(rows)
    of_job = rows[rows["rank"] >= 0]
    assert steps.tobytes() == of_job[of_job["row"]["kind"] == Kind.STEP].tobytes()
    assert given.tobytes() == of_job[of_job["row"]["kind"] == Kind.WORK].tobytes()
    assert passes.tobytes() == of_job[of_job["row"]["kind"] == Kind.PASS].tobytes()
    expected = of_job[of_job["row"]["kind"] < Kind.STEP]
    for _ in range(3):
        assert len(done) == len(expected)
        assert done["counter"].tolist() == expected["row"]["counter"].tolist()
        assert done.rank.tolist() == expected["rank"].tolist()
        assert done.comm.tolist() == comms.index(expected["comm"]).tolist()
        assert done.signs.tolist() == signatures(expected["row"]).tolist()
        some = rng.permutation(len(expected))[:5]
        assert done.rows(some).tobytes() == expected[some].tobytes()
        assert rows[done.places(some)].tobytes() == expected[some].tobytes()
        which = rng.random(len(expected)) < 0.7
        done, expected = done.those(which), expected[which]
    assert done.those(np.ones(len(done), np.bool_)) is done
    assert not len(no_operations()["counter"])


def test_kinds_are_counted_and_what_is_none_is_not() -> None:
    kinds = OpKinds()
    kinds.add(np.array([0, 2, 2, 2]), np.array([1, 1, 9, 1], np.uint8))
    kinds.add(np.array([2, 0]), np.array([200, 64], np.uint8))
    assert (kinds.of(0), kinds.of(1), kinds.of(2), kinds.of(3)) == ({1: 1}, {}, {1: 2, 9: 1}, {})
    kinds.add(np.zeros(0, np.int64), np.zeros(0, np.uint8))


def test_nothing_is_found_before_anything_is_known() -> None:
    comm, place = Communicators().of_ops(np.array([0]), np.zeros(1, np.uint16), np.array([7], np.uint64))
    assert (comm.tolist(), place.tolist()) == ([-1], [-1])
    assert not len(no_operations().rows(np.zeros(0, np.int64)))
    assert no_operations().rows(np.zeros(0, np.int64)).dtype == RECORD_REPORTED
