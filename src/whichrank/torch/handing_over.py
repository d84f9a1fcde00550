"""Hands states from process to process, in pieces over several connections at one time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from whichrank.torch.state import State

STREAMS: Final = 4
"""Connections between two processes: one alone does not fill a network."""
PIECE: Final = 8 << 20
"""Bytes."""
PATIENCE: Final = timedelta(days=1)
"""With a rank that takes long, as to write its state to a slow disk: that must not end the job."""
UNDER_WAY: Final = 2
"""Pieces on each stream and in each direction."""


class HandingOver:
    """Among all ranks of a job; made on all of them."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self._dist = dist
        self._streams = [
            dist.new_group(backend="gloo", timeout=PATIENCE, group_desc=f"whichrank_places_{number}")
            for number in range(STREAMS)
        ]

    def agree(self, number: int) -> int:
        """The least of what all ranks say; they wait for each other."""
        import torch

        said = torch.tensor([number])
        self._dist.all_reduce(said, self._dist.ReduceOp.MIN, group=self._streams[0])
        return int(said)

    def gather(self, number: int) -> list[int]:
        """What each rank says, by rank."""
        import torch

        own = torch.tensor([number])
        said = [torch.zeros_like(own) for _ in range(self._dist.get_world_size())]
        self._dist.all_gather(said, own, group=self._streams[0])
        return [int(one) for one in said]

    def exchange(self, own: State, to: int, source: int) -> tuple[State, bool]:
        """Hand a state over and take another one.

        Args:
            own: To be handed over.
            to: The rank that gets it.
            source: The rank that hands over its own.

        Returns:
            What came, and whether it came as it was.
        """
        import torch

        head = torch.frombuffer(bytearray(own.head()), dtype=torch.uint8)
        about = torch.tensor([len(head), own.checksum()])
        about_other = torch.zeros_like(about)
        self._swap([about], [about_other], to, source)
        head_other = torch.empty(int(about_other[0]), dtype=torch.uint8)
        self._swap([head], [head_other], to, source)
        other = State.awaited(head_other.numpy().tobytes())
        self._swap(list(own.parts()), list(other.parts()), to, source)
        return other, other.checksum() == int(about_other[1])

    def _swap(self, sent: list[Any], received: list[Any], to: int, source: int) -> None:
        """Send these and fill those; pieces go over the streams in turn, and some of each are under way at one time."""
        under_way: list[deque[Any]] = [deque() for _ in range(STREAMS)]
        steps = [(_pieces(sent), self._dist.isend, to), (_pieces(received), self._dist.irecv, source)]
        number = 0
        while steps:
            stream = number % STREAMS
            for step in tuple(steps):
                pieces, begin, peer = step
                piece = next(pieces, None)
                if piece is None:
                    steps.remove(step)
                else:
                    under_way[stream].append(begin(piece, peer, group=self._streams[stream]))
            while len(under_way[stream]) > 2 * UNDER_WAY:
                under_way[stream].popleft().wait()
            number += 1
        for works in under_way:
            for work in works:
                work.wait()


def _pieces(parts: list[Any]) -> Iterator[Any]:
    for part in parts:
        yield from part.split(PIECE)
