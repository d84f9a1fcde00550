"""Ranks that do what they always do are known as if each had a sequence alone, whatever comes and whoever asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import comm_info

from whichrank.store import settled
from whichrank.store.sequences import Sequences

RANKS = 6


def pair(monkeypatch: pytest.MonkeyPatch) -> tuple[Sequences, Sequences]:
    """With a table, and one that takes nobody in."""
    with_table, without = Sequences(), Sequences()
    monkeypatch.setattr(without._settled, "enter", lambda *_: None)
    for sequences in (with_table, without):
        sequences.add_comms([comm_info(7, list(range(RANKS)), "dp")])
    return with_table, without


def known(sequences: Sequences, rank: int) -> tuple[Any, ...]:
    s = sequences.sequence(rank)
    edits = [(edit.ordinal, edit.missing, edit.extra) for edit in s.edits]
    return s.tokens[-2000:].tolist(), s.last_ordinal, s.period, s.explained_up_to, edits, s.is_cut


def history(rng: np.random.Generator, length: int) -> list[int]:
    """A program: a period again and again, with a few edits, and another period later."""
    tokens: list[int] = []
    while len(tokens) < length:
        period = rng.integers(1, 50, rng.integers(3, 12)).tolist()
        for _ in range(int(rng.integers(10, 60))):
            tokens += period
            if rng.random() < 0.03:
                tokens.append(int(rng.integers(50, 60)))
            if rng.random() < 0.03:
                del tokens[-1]
    return tokens[:length]


@pytest.mark.parametrize("seed", range(6))
def test_each_rank_is_known_as_without_the_table(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    # GIVEN ranks that issue in batches: out of order now and then, with a loss, and one whose process is replaced
    rng = np.random.default_rng(seed)
    both = pair(monkeypatch)
    programs = [history(rng, 1600) for _ in range(RANKS)]
    at = [0] * RANKS
    were_settled = 0
    while min(at) < 1500:
        rank, ordinal, token = [], [], []
        for of in range(RANKS):
            n = int(rng.integers(0, 40))
            if rng.random() < 0.01 and at[of] + n < 1500:
                for sequences in both:
                    sequences.expect_loss(of)
                at[of] += int(rng.integers(1, 5))  # these never come
            if rng.random() < 0.005:
                at[of] = 0
                for sequences in both:
                    sequences.forget(of)
            places = np.arange(at[of], min(at[of] + n, 1500))
            if rng.random() < 0.3:
                places = np.append(places, rng.integers(0, at[of] + 1, 3))  # what was reported before
            rng.shuffle(places)
            late = len(places) > 5 and rng.random() < 0.05
            reported = places[:-1] if late else places  # one of them comes with the next batch
            rank += [of] * len(reported)
            ordinal += (reported + 1).tolist()
            token += [programs[of][place] for place in reported]
            at[of] = int(places.min()) if late and len(places) else min(at[of] + n, 1500)
        for sequences in both:
            sequences.feed_tokens(np.array(rank, np.int64), np.array(ordinal, np.int64), np.array(token, np.uint32))
        were_settled += sum(both[0]._settled.has(of) for of in range(RANKS))
        if rng.random() < 0.1:
            of = int(rng.integers(RANKS))
            assert known(both[0], of) == known(both[1], of)
    # THEN all is the same, and the table was used
    for of in range(RANKS):
        assert known(both[0], of) == known(both[1], of)
        assert both[0].period_of(of) == both[1].period_of(of)
    assert both[0].edited == both[1].edited
    assert were_settled > 50


def test_a_long_run_is_counted_as_without_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN two ranks with a period of three, over many times of what a sequence keeps
    both = pair(monkeypatch)
    for sequences in both:
        for begin in range(0, 100_000, 300):
            ordinals = np.tile(np.arange(begin + 1, begin + 301), 2)
            tokens = (ordinals % 3 + 1).astype(np.uint32)
            sequences.feed_tokens(np.repeat([0, 1], 300), ordinals, tokens)
    assert both[0]._settled.has(0)
    for of in (0, 1):
        here, there = known(both[0], of), known(both[1], of)
        assert here[1:] == there[1:]
        assert here[0] == there[0]


def test_where_there_is_no_room_a_rank_stays_out_and_room_is_made_of_those_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settled, "MOST_TOKENS", 10)
    sequences, _ = pair(monkeypatch)

    def issue(rank: int, period: int, first: int = 1, count: int = 200) -> None:
        ordinals = np.arange(first, first + count)
        sequences.feed_tokens(np.full(count, rank), ordinals, (100 * rank + ordinals % period).astype(np.uint32))

    for rank in range(3):
        issue(rank, period=4)
    assert [sequences._settled.has(rank) for rank in range(3)] == [True, True, False]
    # WHEN one leaves THEN another has its place, and the third is still what it was
    sequences.forget(0)
    issue(2, period=4, first=201)
    assert [sequences._settled.has(rank) for rank in range(3)] == [False, True, True]
    issue(1, period=4, first=201)
    assert sequences._settled.has(1)
    assert sequences.sequence(1).last_ordinal == 400
