"""The shape that groups of ranks have in common: a box of places in a layout.

Ranks are numbered dimension by dimension, so a group along some of them is a *box*: so many ranks at one stride, as
often at a greater stride, and so on. Example: with tp2-cp2-pp2-dp4 in this order, gradients are reduced over 8 ranks,
2 at stride 2 (context) times 4 at stride 8 (data): 0, 2, 8, 10, 16, 18, 24, 26.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.stage.groups import Groups

Ints = NDArray[np.int64]
_MIX: Final = 0x9E3779B97F4A7C15
"""An odd number whose bits look random (the golden ratio of 2^64): members of different groups do not add up alike."""


@dataclass(frozen=True)
class Box:
    """A shape of groups.

    Attributes:
        factors: Stride and number of ranks at it, strides ascending.
    """

    factors: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, offsets: Ints) -> Box | None:
        """That of a group by its members, ascending, less the first one; None if it is no box."""
        factors: list[tuple[int, int]] = []
        done = 1
        while done < len(offsets):
            stride = int(offsets[done])
            of_stride = offsets[::done]
            many = int(np.argmin(np.append(of_stride == stride * np.arange(len(of_stride)), False)))
            factors.append((stride, many))
            done *= many
        box = cls(tuple(factors))
        return box if done == len(offsets) and np.array_equal(box.offsets(), offsets) else None

    @property
    def ranks(self) -> int:
        """Members of a group."""
        found = 1
        for _, many in self.factors:
            found *= many
        return found

    def offsets(self) -> Ints:
        """Of the members of a group from its first one, ascending."""
        found = np.zeros(1, np.int64)
        for stride, many in self.factors:
            found = (np.arange(many)[:, None] * stride + found).reshape(-1)
        return found

    def group(self, ranks: int) -> Ints:
        """The group of each rank: its first member, (ranks,)."""
        found = np.arange(ranks)
        for stride, many in self.factors:
            found = found - np.arange(ranks) // stride % many * stride
        return found


def usual_size(groups: Groups, comms: Ints) -> int:
    """How many members most of these communicators have."""
    return int(np.bincount(groups.size[comms]).argmax())


def usual_box(groups: Groups, comms: Ints) -> Box | None:
    """The shape that most of the communicators of the usual size have; None if it is no box."""
    size = usual_size(groups, comms)
    alike = comms[groups.size[comms] == size]
    members = np.sort(groups.member[groups.at[alike][:, None] + np.arange(size)], axis=1)
    offsets = members - members[:, :1]
    weights = (np.arange(1, size + 1, dtype=np.uint64) * np.uint64(_MIX)) | np.uint64(1)
    _, first, times = np.unique(offsets.astype(np.uint64) @ weights, return_index=True, return_counts=True)
    return Box.of(offsets[first[times.argmax()]])


def not_alike(groups: Groups, comms: Ints, group: Ints, size: int) -> Ints:
    """Which of these communicators are no group of a layout.

    Args:
        groups: All of the job.
        comms: Of which all members are known.
        group: A number for the group of each rank, (ranks,).
        size: Members of a group.
    """
    members = groups.member[groups.places(comms)]
    of = np.repeat(np.arange(len(comms)), groups.size[comms])
    starts = np.cumsum(groups.size[comms]) - groups.size[comms]
    labels = group[members]
    wrong = groups.size[comms] != size
    wrong |= np.logical_or.reduceat(labels != np.repeat(labels[starts], groups.size[comms]), starts)
    key = np.sort(of * np.int64(groups.ranks) + members)
    wrong[key[1:][key[1:] == key[:-1]] // groups.ranks] = True  # a member twice
    found: Ints = comms[wrong]
    return found
