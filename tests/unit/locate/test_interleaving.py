"""Schedules of pipelines whose ranks hold several stages, known by the order of messages and backward passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from whichrank.locate.interleaving import (
    Block,
    Event,
    Interleaving,
    Part,
    Turns,
    agreed,
    interleavings,
    sign_of,
    to_compare,
)

SCHEDULES = [
    Interleaving(ranks, each, microbatches)
    for ranks in (2, 3, 4, 8)
    for each in (2, 3, 4)
    for microbatches in (1, 2, 3, ranks, 2 * ranks, 4 * ranks)
    if microbatches < 2 * ranks or microbatches % ranks == 0
]


def signs(schedule: Interleaving, place: int) -> dict[int, set[int]]:
    """Of the ranks that are held against schedules for the one at this place."""
    return {at: {schedule.order(at).sign} for at in to_compare(place, schedule.ranks)}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedule_is_known_by_what_ranks_do(schedule: Interleaving) -> None:
    for place in range(schedule.ranks):
        found = interleavings(schedule.ranks, schedule.stages_per_rank * schedule.microbatches, signs(schedule, place))
        # THEN it is the only one, unless there are so few that nobody is seen to go backward before all went forward
        alike = [schedule, replace(schedule, turns=Turns.BEHIND_ALL), replace(schedule, turns=Turns.REVERSED)]
        assert found == (alike if schedule.microbatches <= 3 else alike[:1])


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 4, 8])
def test_schedules_that_go_backward_behind_all_forward_passes_look_alike(ranks: int, microbatches: int) -> None:
    both = [Interleaving(ranks, 2, microbatches, turns) for turns in (Turns.BEHIND_ALL, Turns.REVERSED)]
    for place in range(ranks):
        for one in both:
            found = interleavings(ranks, 2 * microbatches, signs(one, place))
            assert found[-2:] == both
            assert len(found) == (3 if microbatches <= 3 else 2)


@pytest.mark.parametrize("turns", [Turns.ONE_BY_ONE, Turns.BEHIND_ALL])
@pytest.mark.parametrize("ranks", [2, 4])
def test_schedules_of_one_stage_each(ranks: int, turns: Turns) -> None:
    one = Interleaving(ranks, 1, 8, turns)
    assert all(interleavings(ranks, 8, signs(one, place)) == [one] for place in range(ranks))


def test_other_orders_are_taken_for_none() -> None:
    # GIVEN two stages of each of four ranks, of which the first is gone through with all microbatches before the other
    work = [
        [
            Block(is_forward, stage, batch)
            for stage in (at, at + 4)
            for batch in range(4)
            for is_forward in (True, False)
        ]
        for at in range(4)
    ]
    seen = {at: {sign_of(np.array([*events_of(work[at], 4, 8)]))} for at in range(4)}
    assert interleavings(4, 8, seen) == []


def events_of(work: list[Block], ranks: int, stages: int) -> Iterator[Event]:
    """What is seen of a rank: when it begins a backward pass, and what it sends."""
    for is_forward, stage, _ in work:
        if not is_forward:
            yield Event.BEGIN
        if 0 <= stage + (1 if is_forward else -1) < stages:
            is_ahead = stage % ranks == 0 if ranks == 2 else is_forward
            yield Event.AHEAD if is_ahead else Event.BACK


def test_sign_tells_which_event_is_where() -> None:
    rng = np.random.default_rng(1)
    events = rng.integers(0, len(Event), 30)
    found = {sign_of(events)}
    for at in range(29):  # two that follow each other in turn
        other = events.copy()
        other[[at, at + 1]] = other[[at + 1, at]]
        found.add(sign_of(other))
    assert len(found) == 1 + int((np.diff(events) != 0).sum())


@pytest.mark.parametrize("schedule", [*SCHEDULES, Interleaving(2, 2, 4, Turns.REVERSED)])
def test_where_a_rank_stands_at_every_moment(schedule: Interleaving) -> None:
    stages = schedule.ranks * schedule.stages_per_rank
    for place in range(schedule.ranks):
        done, unseen = [0, 0, 0], list[Part]()
        for block in schedule.order(place).blocks:
            of_block, events = Part(block.is_forward, block.microbatch), [*events_of([block], schedule.ranks, stages)]
            unseen += [] if events else [of_block]
            for event in events:
                if event is Event.BEGIN or block.is_forward:  # a forward pass is over when its message is sent
                    assert schedule.stands_in(place, *done, in_pass=False) == (unseen or [of_block])
                done[event] += 1
                unseen = []
                if event is Event.BEGIN:
                    assert schedule.stands_in(place, *done, in_pass=True) == [of_block]
        # THEN behind the last pass nothing is said, and neither where it cannot be
        assert schedule.stands_in(place, *done, in_pass=False) == []
        assert schedule.stands_in(place, done[0], done[1], done[2] + 1, in_pass=True) == []
        assert schedule.stands_in(place, 0, 0, 1, in_pass=True) == []


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_of_which_pass_each_message_is(schedule: Interleaving) -> None:
    ranks, last = schedule.ranks, schedule.ranks * schedule.stages_per_rank - 1
    for sender in range(ranks):
        for receiver in {(sender + 1) % ranks, (sender - 1) % ranks}:
            sent = [
                Part(block.is_forward, block.microbatch)
                for block in schedule.order(sender).blocks
                if 0 <= (to := block.stage + (1 if block.is_forward else -1)) <= last and to % ranks == receiver
            ]
            assert [schedule.message(sender, receiver, number) for number in range(len(sent))] == [
                [one] for one in sent
            ]
            assert schedule.message(sender, receiver, len(sent)) == []
            assert schedule.message(sender, receiver, -1) == []


def test_only_what_follows_from_all_schedules_is_said() -> None:
    assert agreed([Part(True, 1), Part(True, 1)]) == Part(True, 1)
    assert agreed([Part(True, 1), Part(True, 2)]) == Part(True, None)
    assert agreed([Part(True, 1), Part(False, 1)]) is None
    assert agreed([]) is None


def test_microbatches_of_own_time() -> None:
    # GIVEN the last of two ranks, which hold two stages each, and two microbatches
    order = Interleaving(2, 2, 2).order(1)
    assert [(b.is_forward, b.stage, b.microbatch) for b in order.blocks] == [
        (True, 1, 0), (True, 1, 1), (True, 3, 0), (False, 3, 0), (True, 3, 1), (False, 3, 1), (False, 1, 0),
        (False, 1, 1),
    ]  # fmt: skip
    # THEN its forward passes are told apart by what it has done before, and its backward passes by their number
    assert order.of_forward == (0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0)
    assert order.of_backward == (0, 1, 0, 1)
