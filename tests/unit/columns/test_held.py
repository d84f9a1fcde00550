"""Operations held against periods and rounds: as plain Python does it, operation by operation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from whichrank.columns.periods import Periods, hold_periods
from whichrank.columns.rounds import Lately, News, Rounds, hold_rounds
from whichrank.model.codes import Status
from whichrank.model.kinds import Kind

SEEDS = st.integers(0, 2**32 - 1)
RANKS = 4


@given(SEEDS)
def test_ranks_go_on_with_their_periods_or_leave(seed: int) -> None:
    rng = np.random.default_rng(seed)
    length, at = rng.integers(1, 6, RANKS), np.zeros(RANKS, np.int64)
    at[1:] = np.cumsum(length)[:-1]
    periods = rng.integers(0, 3, int(length.sum())).astype(np.uint32)
    inside = rng.random(RANKS) < 0.8
    place, next_, untold = rng.integers(0, length), rng.integers(1, 50, RANKS), rng.integers(0, 9, RANKS)
    at = np.where(inside, at, -1)
    table = Periods.of(
        ranks=RANKS, tokens=len(periods), at=at, length=length, place=place, next=next_, untold=untold, periods=periods
    )
    before = place.copy(), next_.copy(), untold.copy()
    # WHEN ranks issue what comes next, something else, or what is known
    rank, ordinal, tokens, expected, leave = [], [], [], [], []
    for of in range(RANKS + 1):
        n, known = int(rng.integers(0, 8)), int(rng.integers(0, 3))
        first = int(next_[of]) - known if of < RANKS else 7
        if of < RANKS and inside[of]:
            issued = [int(periods[at[of] + (place[of] + i - known) % length[of]]) for i in range(n)]
        else:
            issued = [0] * n
        ordinals = list(range(first, first + n))
        is_odd = n > known and rng.random() < 0.4
        if is_odd and rng.random() < 0.5:
            issued[-1] = 7
        elif is_odd:
            ordinals[-1] += 1
        rank += [of] * n
        ordinal += ordinals
        tokens += issued
        is_in = of < RANKS and bool(inside[of])
        expected += [is_in and not is_odd] * n
        if n and is_in and is_odd:
            leave.append(of)
        elif n and is_in:
            place[of], next_[of], untold[of] = before[0][of], before[1][of], before[2][of]
    held = hold_periods(table, np.array(rank, np.int64), np.array(ordinal, np.int64), np.array(tokens, np.uint32), 10)
    # THEN those that do as always are dealt with, and go on
    assert held is not None
    dealt_with, leaving, to_tell = held
    assert dealt_with.tolist() == expected
    assert leaving == leave
    for of in range(RANKS):
        new = [o for r, o, d in zip(rank, ordinal, expected, strict=True) if r == of and d and o >= before[1][of]]
        assert next_[of] == before[1][of] + len(new)
        assert place[of] == (before[0][of] + len(new)) % length[of]
        assert untold[of] == before[2][of] + len(new)
        assert (of in to_tell) == (bool(new) and untold[of] >= 10)


def test_periods_are_not_held_against_what_is_in_no_order() -> None:
    one = np.zeros(1, np.int64)
    table = Periods.of(
        ranks=1, tokens=1, at=one, length=np.ones(1, np.int64), place=np.zeros(1, np.int64),
        next=np.zeros(1, np.int64), untold=np.zeros(1, np.int64), periods=np.zeros(1, np.uint32),
    )  # fmt: skip
    for rank, ordinal in (([0, 0], [1, 1]), ([0, 0], [2, 1]), ([1, 0], [1, 2])):
        assert hold_periods(table, np.array(rank), np.array(ordinal), np.zeros(2, np.uint32), 9) is None


COMMS, DEPTH, STEADY = 3, 8, 4
SIZE = np.array([1, 3, 4])


class Job:
    """Rounds of three communicators, one of them of a single rank; and the same as dictionaries."""

    def __init__(self) -> None:
        self.first = np.zeros(COMMS * DEPTH, np.uint64)
        self.first_ordinal = np.zeros(COMMS * DEPTH, np.uint32)
        self.first_end_s = np.zeros(COMMS * DEPTH)
        members = int(SIZE.sum())
        self.behind, self.since = np.zeros(members, np.int32), np.zeros(members, np.uint32)
        self.seen = np.full(4, 99, np.uint32)
        self.lately = [np.zeros(16, kind) for kind in ("i4", "i4", "u4", "u4", "u4")]
        self.next = 0
        self.known: dict[tuple[int, int], tuple[int, int, int]] = {}  # by slot: counter, signature, ordinal
        self.kept: list[tuple[int, ...]] = []

    def hold(self, ops: NDArray[np.int64]) -> News:
        """Hold rows of rank, communicator, place, counter, ordinal, signature, end, kind and status."""
        rank, comm, place, counter, ordinal, sign, end_ns, kind, status = (np.ascontiguousarray(c) for c in ops.T)
        table = Rounds.of(
            comms=COMMS, slots=COMMS * DEPTH, members=int(SIZE.sum()), ranks=RANKS, seen_size=4, size=SIZE,
            last=np.full(COMMS, DEPTH - 1, np.uint32), slot_at=DEPTH * np.arange(COMMS),
            member_at=np.cumsum(SIZE) - SIZE, lowest=np.zeros(COMMS, np.uint32), offset_s=np.full(RANKS, 0.5),
            first=self.first, first_ordinal=self.first_ordinal, first_end_s=self.first_end_s, behind=self.behind,
            behind_since=self.since, seen=self.seen, steady=STEADY,
        )  # fmt: skip
        names = ("comm", "member", "counter", "sign", "ordinal")
        lately = Lately.of(size=16, next=self.next, **dict(zip(names, self.lately, strict=True)))
        news = hold_rounds(
            table, lately, rank=rank, comm=comm, place=place, counter=counter.astype(np.uint32),
            ordinal=ordinal.astype(np.uint32), sign=sign.astype(np.uint64) << np.uint64(32),
            end_ns=end_ns.astype(np.uint64), kind=kind.astype(np.uint8), status=status.astype(np.uint8),
        )  # fmt: skip
        self.next = lately.next
        return news

    def expected(self, ops: NDArray[np.int64]) -> tuple[int, set[int], set[int]]:
        """How many are compared, which of them differ, and which are the first of their rounds."""
        taken = [
            at for at, (rank, comm, place, counter, _, _, _, kind, status) in enumerate(ops.tolist())
            if 0 <= rank < RANKS and 0 <= comm < COMMS and SIZE[comm] > 1 and 0 <= place < SIZE[comm] and counter > 0
            and kind < Kind.SEND and status == Status.DONE
        ]  # fmt: skip
        lowest = {c: min(int(ops[at, 3]) for at in taken if ops[at, 1] == c) for c in {int(ops[at, 1]) for at in taken}}
        self.kept += [tuple(ops[at, [1, 2, 3, 5, 4]].tolist()) for at in taken]
        differ, first = set(), set()
        for at in sorted(taken, key=lambda at: (int(ops[at, 3]) - lowest[int(ops[at, 1])]) // DEPTH):
            comm, counter, ordinal, sign = (int(ops[at, column]) for column in (1, 3, 4, 5))
            key = comm, counter % DEPTH
            known = self.known.get(key, (0, 0, 0))
            if counter > known[0]:
                self.known[key] = counter, sign, ordinal
                first.add(at)
            elif counter == known[0] and sign != known[1]:
                differ.add(at)
        return len(taken), differ, first


@given(SEEDS, st.integers(1, 5))
def test_rounds_are_held_against_their_first(seed: int, batches: int) -> None:
    rng = np.random.default_rng(seed)
    job, reached = Job(), 1
    for _ in range(batches):
        # WHEN members report rounds, out of order, many or few at once, and what is of no round
        n = int(rng.integers(0, 30))
        span = int(rng.choice([1, 3, DEPTH, 3 * DEPTH]))
        comm = rng.integers(-1, COMMS + 1, n)
        counter = np.maximum(rng.integers(reached - 3, reached + span, n), 0)
        reached += int(rng.integers(0, span + 1))
        ops = np.stack([
            rng.integers(-1, RANKS + 1, n), comm, rng.integers(-1, 5, n), counter,
            counter + rng.integers(0, 2, n), np.where(rng.random(n) < 0.1, 5, 3 + counter % 2), rng.integers(0, 2, n),
            rng.choice([Kind.ALL_REDUCE, Kind.BARRIER, Kind.SEND, Kind.STEP], n, p=[0.6, 0.3, 0.05, 0.05]),
            rng.choice([Status.DONE, Status.FAILED], n, p=[0.9, 0.1]),
        ], axis=1).astype(np.int64)  # fmt: skip
        news = job.hold(ops)
        taken, differ, first = job.expected(ops)
        # THEN the same are compared, and the same differ
        assert news.taken == taken
        assert set(news.differing.tolist()) == differ
        for (of, place), (number, sign, ordinal) in job.known.items():
            slot = of * DEPTH + place
            assert int(job.first[slot]) == number << 32 | sign
            assert job.first_ordinal[slot] == ordinal
            assert job.first_end_s[slot] in (0.0, 0.5 + 1e-9)
        # AND what is new of them is to be remembered, each signature once at least
        assert set(news.unseen.tolist()) <= differ | first
        assert {int(s) for s in ops[news.unseen, 5]} <= {int(s) for s in ops[sorted(differ | first), 5]}
    assert {int(sign) for _, sign, _ in job.known.values()} <= {3, 4, 5}
    newest = {tuple(int(column[at]) for column in job.lately) for at in range(16)} - {(0, 0, 0, 0, 0)}
    assert newest == set(job.kept[-16:])


def test_a_member_that_moves_after_it_was_steady_is_reported_once() -> None:
    job = Job()

    def ops(counters: range, late: int) -> NDArray[np.int64]:
        rows = [
            (m, 2, m, c, c + (late if m == 1 else 0), 3, 0, Kind.ALL_REDUCE, Status.DONE)
            for c in counters
            for m in range(4)
        ]
        return np.array(rows, np.int64)

    assert not len(job.hold(ops(range(1, 7), 0)).apart)
    assert job.hold(ops(range(7, 9), 1)).apart.tolist() == [2, 2]
    assert job.behind[4:].tolist() == [0, 1, 0, 0]
    assert not len(job.hold(ops(range(9, 11), 0)).apart)  # too soon to mean anything
    # AND one that was elsewhere for one of several laps only is where it was
    moved = np.concatenate((ops(range(11, 14), 0), ops(range(14, 15), 1), ops(range(15, 30), 0)))
    job.hold(moved)
    assert not job.behind.any()
    assert job.since[5] == 26  # the last of the next lap
