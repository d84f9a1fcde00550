"""How far each member of a collective gets when one hop carries nothing more: chunk by chunk, in a ring or a tree.

Collectives are pipelined. A member sends a chunk once it has received what goes into it, and only so far ahead of the
next member as there are slots in the buffer between both: the credit of the hop. So when a hop stops, the member behind
it stops first, those behind that one follow, each a little further, and those before it stop for want of credit. What
each has sent and received by then is what its frame counts.

Example: of four members in a ring the hop from the second to the third carries 5 of 24 chunks. The third has received
5, and sends the sixth chunk, for which it needs five; the second has sent 13 into its buffer of 8 slots.

Source: NCCL's primitives, which keep 8 slots for each connection (NCCL_STEPS).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
CREDIT: Final = 8
"""Slots of a connection."""
LOOPS, CHUNKS, TREES = 4, 32, 0.5
"""Times that data go round a ring, chunks that go up and down a tree, and the share of trees."""


def stopped(members: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """A ring or a tree, of which a hop stops somewhere, by chance; what members have sent and received, (members,)."""
    if members < 2:
        return np.zeros(members, np.int64), np.zeros(members, np.int64)
    if rng.random() < TREES:
        return tree(members, CHUNKS, int(rng.integers(1, members)), int(rng.integers(CHUNKS)))
    return ring(members, LOOPS, int(rng.integers(members)), int(rng.integers(2 * (members - 1) * LOOPS)))


def ring(members: int, loops: int, broken: int, carried: int) -> tuple[Ints, Ints]:
    """Messages that each member of an all-reduce has sent and received when all stand still, (members,) each.

    Args:
        members: In the order of the ring, two at the least.
        loops: How often the data go round: each takes twice as many steps as there are members, less two.
        broken: The member whose messages to the next one are lost.
        carried: How many have come before that.
    """
    steps = 2 * (members - 1) * loops
    sent, received = np.full(members, steps), np.full(members, steps)
    while True:
        arrived = np.minimum(received, np.roll(sent, 1))  # nothing is received that was not sent
        arrived[(broken + 1) % members] = min(int(arrived[(broken + 1) % members]), carried)
        arrived = np.minimum(arrived, np.where(sent < steps, sent, steps))  # a chunk is taken when it can be passed on
        given = np.minimum(sent, np.minimum(arrived + 1, np.roll(arrived, -1) + CREDIT))
        if (arrived == received).all() and (given == sent).all():
            return sent, received
        sent, received = given, arrived


def tree(members: int, chunks: int, broken: int, carried: int) -> tuple[Ints, Ints]:
    """The same of an all-reduce up a binary tree and down again: the parent of `i` is `(i - 1) // 2`.

    Args:
        members: Two at the least.
        chunks: Of the data.
        broken: The member whose messages to its parent are lost, not the root.
        carried: How many have come before that.
    """
    child = np.arange(1, members)
    parent = (child - 1) // 2
    up, down = np.full(members, chunks), np.full(members, chunks)  # of each child to and from its parent
    while True:
        ready = np.full(members, chunks)  # chunks that a member has from all of its children
        taken = np.where(child == broken, np.minimum(up[child], carried), up[child])
        np.minimum.at(ready, parent, taken)
        new_up, new_down = up.copy(), down.copy()
        # A chunk is taken from all children at once, and above the leaves only when it can be passed on.
        passed = np.append(ready[:1], np.minimum(ready, up)[1:])
        new_up[child] = np.minimum(up[child], np.minimum(ready[child], passed[parent] + CREDIT))
        has = np.where(parent == 0, ready[0], down[parent])
        new_down[child] = np.minimum(down[child], has)
        if (new_up == up).all() and (new_down == down).all():
            break
        up, down = new_up, new_down
    sent, received = np.zeros(members, np.int64), np.zeros(members, np.int64)
    sent[child] += up[child]
    np.add.at(received, parent, passed[parent])
    np.add.at(sent, parent, down[child])
    received[child] += down[child]
    return sent, received
