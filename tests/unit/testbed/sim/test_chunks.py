"""Who stops first when a hop of a collective carries nothing more, and how far each neighbour gets."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.testbed.sim.chunks import CREDIT, ring, tree
from whichrank.testbed.sim.faults import draw_lost, ends_of
from whichrank.testbed.sim.trial import batches, draw_job


def walked(members: int, loops: int, broken: int, carried: int) -> tuple[list[int], list[int]]:
    """The same, message by message."""
    steps = 2 * (members - 1) * loops
    sent, received = [0] * members, [0] * members
    moves = True
    while moves:
        moves = False
        for one in range(members):
            after, before = (one + 1) % members, (one - 1) % members
            if sent[one] < steps and sent[one] <= received[one] and sent[one] - received[after] < CREDIT:
                sent[one] += 1
                moves = True
            may_take = received[one] < sent[before] and (received[one] < sent[one] or sent[one] == steps)
            if may_take and not (before == broken and received[one] >= carried):
                received[one] += 1
                moves = True
    return sent, received


@pytest.mark.parametrize("members", [2, 3, 4, 8, 33])
@pytest.mark.parametrize("loops", [1, 4])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_ring_stands_where_it_stands_message_by_message(members: int, loops: int, share: float) -> None:
    carried, broken = int(share * 2 * (members - 1) * loops), members // 2
    sent, received = ring(members, loops, broken, carried)
    assert (sent.tolist(), received.tolist()) == walked(members, loops, broken, carried)


def test_the_member_behind_the_broken_hop_has_received_the_least_and_the_one_before_it_sends_on() -> None:
    # GIVEN a ring of 16, four times round, in which the hop from the sixth member carries 20 of 120
    sent, received = ring(16, 4, 5, 20)
    assert int(received.argmin()) == 6
    assert received[6] == 20
    assert sent[5] - received[6] == min(CREDIT, sent[5] - 20)
    assert sent[5] > 20
    # THEN each member behind it gets no further than one message more than the one before
    behind = np.roll(received, -6)
    assert (np.diff(behind[:8]) <= 1).all()


def test_a_ring_that_is_whole_ends() -> None:
    sent, received = ring(8, 3, 0, 42)
    assert sent.tolist() == received.tolist() == [42] * 8


@pytest.mark.parametrize("members", [2, 3, 7, 16])
def test_a_tree_that_is_whole_ends(members: int) -> None:
    sent, received = tree(members, 12, 1, 12)
    # THEN each of the edges has carried all chunks up and down
    assert sent.sum() == received.sum() == 2 * 12 * (members - 1)


def test_in_a_tree_nobody_hears_more_from_above_than_the_root_has() -> None:
    # GIVEN seven members, and the way from the third to the root carries 5 of 40 chunks
    sent, received = tree(7, 40, 2, 5)
    assert received[0] == 5 + 5  # of both children, chunk by chunk
    assert sent[0] == 2 * 5
    # THEN the broken child has sent into its slots, and its own children into theirs behind that
    assert sent[2] == 5 + CREDIT + 2 * 5
    assert sent[5] == sent[6] == 5 + 2 * CREDIT
    # AND the other child waits for room at the root
    assert sent[1] == 5 + CREDIT + 2 * 5


def test_a_large_ring_is_quick_enough_to_be_simulated() -> None:
    sent, received = ring(512, 2, 100, 700)
    assert len(sent) == len(received) == 512
    assert received[101] == 700


def test_frames_of_a_lost_collective_count_what_its_members_have_sent() -> None:
    # GIVEN a simulated job in which a collective of several ranks never ends
    seed = next(seed for seed in range(40) if _is_lost_collective(seed))
    job = draw_job(seed)
    fault = draw_lost(job.run(), np.random.default_rng([seed, 2]), 15)
    members = sorted(ends_of(fault, job.run()))
    *_, (_, told) = batches(job, fault)
    rates = np.concatenate([batch.rate_rows() for batch in told])
    # THEN the frames of its members differ, those of others do not, and no more was received than was sent
    mine = np.isin(rates["rank"], members)
    assert len(np.unique(rates["op_received"][mine])) > 1
    assert set(rates["op_sent"][~mine].tolist()) <= {1}
    assert rates["op_received"][mine].sum() <= rates["op_sent"][mine].sum()


def _is_lost_collective(seed: int) -> bool:
    job = draw_job(seed)
    fault = draw_lost(job.run(), np.random.default_rng([seed, 2]), 15)
    return fault.where == "lost collective" and len(ends_of(fault, job.run())) > 2
