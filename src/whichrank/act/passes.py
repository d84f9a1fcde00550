"""Which links of a communicator are tested when, so that all are covered and none is in the way of another.

In a pass each member sends to one other or receives from one: two passes go round an even ring, three round an odd one,
and four along a tree, however many members there are. Source: Greyhound, section 4.3 and figure 10.
"""

from __future__ import annotations

Pass = tuple[tuple[int, int], ...]
"""Who sends to whom, as places in the communicator; no place twice."""


def ring_passes(size: int) -> list[Pass]:
    """Each member to its next one.

    Args:
        size: Members.
    """
    if size < 2:
        return []
    if size == 2:
        return [((0, 1),), ((1, 0),)]
    passes: list[Pass] = [
        tuple((at, at + 1) for at in range(0, size - 1, 2)),
        tuple((at, (at + 1) % size) for at in range(1, size - size % 2, 2)),
    ]
    return [*passes, ((size - 1, 0),)] if size % 2 else passes


def tree_passes(size: int) -> list[Pass]:
    """Each member to its parent, in a tree in which that of `n` is `(n - 1) // 2`: children of even depth first.

    Args:
        size: Members.
    """
    passes: list[Pass] = []
    for depth in (0, 1):
        for side in (1, 0):  # left children have odd places
            pairs = tuple(
                (at, (at - 1) // 2)
                for at in range(1, size)
                if at % 2 == side and ((at + 1).bit_length() - 1) % 2 == depth
            )
            if pairs:
                passes.append(pairs)
    return passes
