"""P and the class of a slowdown; when all ranks are slower alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from whichrank.detect.lately import LostLately
from whichrank.detect.nobody import all_slower
from whichrank.detect.slow import Past, beyond_past, beyond_peers, beyond_ring, class_of
from whichrank.locate.selftime import excess_of
from whichrank.model.iterations import Window
from whichrank.model.work import Work

RANKS = 4


def past(transfer_s: float) -> Past:
    made = Past()
    made.transfer_s, made.iteration_s = transfer_s, 0.25
    return made


@pytest.mark.parametrize(
    ("waiting_s", "transfer_s", "share", "fault_class"),
    [
        (0.1, 0.02, 1.0, "S1"),
        (0.1, 0.03, 1.0, "S1"),
        (0.1, 0.12, 0.5, "S3"),
        (0.02, 0.12, 1 / 6, "S2"),
        (0.0, 0.12, 0.0, "S2"),
    ],
)
def test_the_class_goes_by_what_collectives_lose(
    waiting_s: float, transfer_s: float, share: float, fault_class: str
) -> None:
    # GIVEN a baseline of 20 ms of transfers in an iteration of 250 ms
    assert class_of(waiting_s, transfer_s, past(0.02)) == (pytest.approx(share), fault_class)


def test_without_a_past_or_a_loss_transfers_say_nothing() -> None:
    assert class_of(0.1, 0.5, Past()) == (1.0, "S1")
    assert class_of(0.0, 0.02, past(0.02)) is None
    assert class_of(0.0, 0.5, Past()) is None


def iterations(own_s: float, total_s: float, n: int = 40) -> Window:
    return Window(
        np.arange(RANKS), np.arange(n), np.zeros((RANKS, n), np.int64), np.full((RANKS, n), total_s),
        np.full((RANKS, n), own_s), np.zeros(RANKS, np.int64), np.zeros(RANKS, np.bool_), np.zeros(RANKS, np.uint64),
        n * total_s, np.full(RANKS, -1),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own_s", "total_s", "factor"),
    [
        (0.10, 0.12, 1.0),
        (0.15, 0.17, 1.5),
        (0.15, 0.23, 1.5),  # transfers take their part of the CPU too
        (0.117, 0.14, 1.17),
        (0.117, 0.137, 1.0),  # too little
        (0.117, 0.24, 1.0),  # a sixth more of computation does not make an iteration twice as long
    ],
)
def test_all_are_slower_where_that_explains_what_an_iteration_takes(
    own_s: float, total_s: float, factor: float
) -> None:
    # GIVEN iterations of 120 ms, of which 100 are computation
    before = Past()
    before.learn(iterations(0.1, 0.12), without_cpu=0.0, transfer_s=0.02)
    assert all_slower(iterations(own_s, total_s), before) == pytest.approx(factor)


def slower(own_s: dict[int, float]) -> list[tuple[int, str, float]]:
    """Suspects of four ranks in two positions, each of which was at 100 ms: these are slower now."""
    before, now = iterations(0.1, 0.2), iterations(0.1, 0.3)
    position, noise_s = np.arange(RANKS) // 2, 1e-4 * np.sin(np.arange(RANKS * 40)).reshape(RANKS, 40)
    own = np.full((RANKS, 40), 0.1) + noise_s
    for rank, seconds in own_s.items():
        own[rank] += seconds - 0.1
    known = Past()
    known.learn(replace(before, position=position), without_cpu=0.0, transfer_s=0.02)
    window = replace(now, position=position, own_s=own)
    excess = excess_of(window)
    suspects = beyond_peers(window, excess, 6.0, LostLately())
    found = beyond_past(window, excess, known, 6.0, suspects)
    names = {suspect.index for suspect in found}
    both = [suspect for suspect in suspects if suspect.index not in names] + found
    return sorted((s.index, s.against, round(s.excess_s, 2)) for s in both)


def test_two_ranks_that_are_apart_from_all_others_are_slow_however_much_they_vary() -> None:
    # GIVEN eight ranks, two of which take from 0.1 to 0.3 s longer in each of the last five iterations
    rng = np.random.default_rng(3)
    own_s = 0.4 + rng.normal(0.0, 0.01, (8, 8))
    own_s[3:5, 3:] += [[0.22, 0.14, 0.22, 0.29, 0.12], [0.2, 0.12, 0.32, 0.31, 0.22]]

    def suspects(own_s: np.ndarray) -> list[int]:
        n = own_s.shape[1]
        window = Window(
            np.arange(8), np.arange(n), np.tile(np.arange(n) * 2_000_000_000, (8, 1)), np.full((8, n), 2.0), own_s,
            np.zeros(8, np.int64), np.zeros(8, np.bool_), np.zeros(8, np.uint64), n * 2.0, np.full(8, -1),
        )  # fmt: skip
        return sorted(suspect.index for suspect in beyond_peers(window, excess_of(window), 10.0, LostLately()))

    assert suspects(own_s) == [3, 4]
    # BUT three of eight are no exception, and one that is not above all others in each of them is noise
    three, noisy = own_s.copy(), own_s.copy()
    three[6, 3:] += [0.3, 0.12, 0.2, 0.2, 0.12]
    noisy[6, 5] += 0.15
    assert suspects(three) == suspects(noisy) == []


def test_iterations_before_the_latest_window_say_too_that_an_excess_is_no_chance() -> None:
    # GIVEN a rank of two that takes 7 or 13 % of an iteration longer, and a latest window of ten iterations
    def suspects(quiet: int) -> list[tuple[int, int]]:
        own_s = np.full((2, 19), 0.4)
        own_s[1, quiet:] += np.where(np.arange(19 - quiet) % 2 == 0, 0.07, 0.13)
        end_ns = np.tile(np.arange(1, 20) * 1_000_000_000, (2, 1))
        window = Window(
            np.arange(2), np.arange(19), end_ns, np.full((2, 19), 1.0), own_s, np.zeros(2, np.int64),
            np.zeros(2, np.bool_), np.zeros(2, np.uint64), 19.0, np.full(2, -1),
        )  # fmt: skip
        found = beyond_peers(window, excess_of(window), 10.0, LostLately())
        return [(suspect.index, suspect.onset - suspect.before) for suspect in found]

    # THEN ten iterations are too few for so small an excess, and nineteen are enough
    assert suspects(9) == []
    assert suspects(0) == [(1, 0)]


def test_where_all_of_a_position_are_slow_they_are_compared_with_what_they_were() -> None:
    assert slower({2: 0.15}) == [(2, "peers", 0.05)]
    assert slower({2: 0.19, 3: 0.15}) == [(2, "past", 0.09), (3, "past", 0.05)]
    # BUT not where all ranks are slower, of which one is slower still
    assert slower(dict.fromkeys(range(RANKS), 0.15) | {2: 0.19}) == [(2, "peers", 0.04)]


def round_a_ring(own_s: list[float]) -> list[int]:
    """Who is slower than all others of a ring with these own times."""
    noise_s = 1e-4 * np.sin(np.arange(RANKS * 40)).reshape(RANKS, 40)
    window = replace(
        iterations(0.1, 0.3), own_s=np.array(own_s)[:, None] + noise_s, position=np.arange(RANKS),
        ring=np.zeros(RANKS, np.int64),
    )  # fmt: skip
    return [suspect.index for suspect in beyond_ring(window, excess_of(window), 6.0)]


def test_of_a_ring_only_a_rank_that_stands_out_is_slow_without_a_past() -> None:
    assert round_a_ring([0.1, 0.1, 0.19, 0.105]) == [2]
    # BUT not where a causal mask gives each rank more to do than the one before
    assert round_a_ring([0.1, 0.13, 0.16, 0.19]) == []
    assert round_a_ring([0.1, 0.1, 0.1, 0.1]) == []


def test_of_a_ring_a_rank_is_slow_for_a_while() -> None:
    # GIVEN a rank that has been slow for five iterations
    own_s = np.full((RANKS, 40), 0.1) + 1e-4 * np.sin(np.arange(RANKS * 40)).reshape(RANKS, 40)
    own_s[2, -5:] = 0.4
    window = replace(
        iterations(0.1, 0.3), own_s=own_s, total_s=np.full((RANKS, 40), 0.5), position=np.arange(RANKS),
        ring=np.zeros(RANKS, np.int64),
    )  # fmt: skip
    assert [suspect.index for suspect in beyond_ring(window, excess_of(window), 6.0)] == [2]


def test_of_a_ring_no_rank_is_slow_by_chance() -> None:
    # GIVEN ranks that take turns in being much slower, as with sequences of any length
    turns = np.where(np.random.default_rng(7).random((RANKS, 40)) < 0.3, 0.19, 0.1)
    window = replace(iterations(0.1, 0.3), own_s=turns, position=np.arange(RANKS), ring=np.zeros(RANKS, np.int64))
    assert beyond_ring(window, excess_of(window), 6.0) == []


def test_pauses_that_all_ranks_have_make_none_slower_than_it_was() -> None:
    # GIVEN ranks without peers that were at 100 ms, each of which pauses in one iteration of five
    known = Past()
    known.learn(iterations(0.1, 0.3), without_cpu=0.0, transfer_s=0.02)
    own_s = np.full((RANKS, 40), 0.1)
    for rank in range(RANKS):
        own_s[rank, rank::5] = 0.19
    own_s[2, ::2] += 0.02

    def suspects(own_s: np.ndarray) -> list[int]:
        window = replace(iterations(0.1, 0.3), own_s=own_s, position=np.arange(RANKS))
        return [suspect.index for suspect in beyond_past(window, excess_of(window), known, 6.0, [])]

    assert suspects(own_s) == []
    # BUT one that pauses more and more often, as no other does, comes and goes
    alone_s = np.full((RANKS, 40), 0.1)
    alone_s[2, ::2] = 0.25
    alone_s[2, 1::4] = 0.25
    alone_s[2, 20:24] = 0.1
    assert suspects(alone_s) == [2]


def test_what_a_rank_is_given_counts_in_each_iteration_and_not_in_the_middle_of_all() -> None:
    # GIVEN a past, and a window of which almost half has twice as long rows, and the rest some noise
    n = 17
    known, now = Past(), iterations(0.16, 0.2, n)
    usual = Work(np.full((RANKS, 40), 1e3), np.full((RANKS, 40), 20.0))
    known.learn(replace(iterations(0.09, 0.12), given=usual), without_cpu=0.0, transfer_s=0.02)
    now.own_s[:, :9] = np.linspace(0.09, 0.14, 9)
    more = np.tile(np.where(np.arange(n) < 9, 1.0, 2.0), (RANKS, 1))
    # THEN the longest of that noise, which is in the middle of all, is no slowdown
    assert known.grown(replace(now, given=Work(1e3 * more, 20 * more))) == pytest.approx(1.0)
    assert known.grown(replace(now, given=Work(1e3 * more, 0 * more))) == pytest.approx(1.0)
    # BUT it is where nothing is known of them
    assert known.grown(now) == pytest.approx(0.14 / 0.09)


def test_a_rank_that_its_node_says_is_held_back_needs_fewer_iterations() -> None:
    # GIVEN a rank that takes longer in four iterations of eight ranks, as much as they vary
    rng = np.random.default_rng(2)
    own_s = np.abs(rng.normal(0.14, 0.005, (8, 9)))
    own_s[4, 5:] += [0.18, 0.47, 0.35, 0.39]
    total_s = np.full((8, 9), 1.3)
    window = Window(
        np.arange(8), np.arange(9), np.tile((np.cumsum(total_s[0]) * 1e9).astype(np.int64), (8, 1)), total_s, own_s,
        np.zeros(8, np.int64), np.zeros(8, np.bool_), np.zeros(8, np.uint64), float(total_s[0].sum()), np.full(8, -1),
    )  # fmt: skip
    # THEN that alone is not enough, and beside another witness it is; of no other rank is it so
    assert beyond_peers(window, excess_of(window), 5.0, LostLately()) == []
    assert [s.index for s in beyond_peers(window, excess_of(window), 5.0, LostLately(), are_held=True)] == [4]
    own_s[4, 5:] -= [0.18, 0.47, 0.35, 0.39]
    assert beyond_peers(window, excess_of(window), 5.0, LostLately(), are_held=True) == []


@pytest.mark.parametrize(
    ("are_held", "slow", "found"), [(True, 2, [3]), (True, 1, []), (False, 2, []), (False, 5, [3])]
)
def test_rank_that_is_held_back_is_found_by_two_iterations(*, are_held: bool, slow: int, found: list[int]) -> None:
    # GIVEN iterations of half a second, and of two seconds since a rank is limited
    rng = np.random.default_rng(5)
    own_s = 0.4 + rng.normal(0.0, 0.01, (8, 16))
    own_s[3, -slow:] += 1.5 + rng.normal(0.0, 0.05, slow)
    total_s = np.where(np.arange(16) < 16 - slow, 0.5, 2.0) * np.ones((8, 1))
    window = Window(
        np.arange(8), np.arange(16), (1e9 * np.cumsum(total_s, axis=1)).astype(np.int64), total_s, own_s,
        np.zeros(8, np.int64), np.zeros(8, np.bool_), np.zeros(8, np.uint64), float(total_s[0].sum()), np.full(8, -1),
    )  # fmt: skip
    assert [s.index for s in beyond_peers(window, excess_of(window), 5.0, LostLately(), are_held=are_held)] == found


def test_noise_before_a_slowdown_is_no_part_of_it() -> None:
    # GIVEN a rank that is a little long by chance in two iterations, and takes ten times as long in the next four
    rng = np.random.default_rng(6)
    own_s = 0.4 + rng.normal(0.0, 0.005, (8, 12))
    own_s[3, 6:8] += 0.06
    own_s[3, 8:] += 4.0
    total_s = np.where(np.arange(12) < 8, 0.5, 4.5) * np.ones((8, 1))
    window = Window(
        np.arange(8), np.arange(12), (1e9 * np.cumsum(total_s, axis=1)).astype(np.int64), total_s, own_s,
        np.zeros(8, np.int64), np.zeros(8, np.bool_), np.zeros(8, np.uint64), float(total_s[0].sum()), np.full(8, -1),
    )  # fmt: skip
    (suspect,) = beyond_peers(window, excess_of(window), 5.0, LostLately())
    # THEN what is said of an iteration since then is of those alone
    assert (suspect.index, suspect.onset) == (3, 8)
    assert suspect.share == 1.0
