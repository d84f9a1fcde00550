"""Runs a user's script, unmodified, and reports over the control channel when each of its iterations begins.

``launcher --nproc 4 -- -m whichrank.testbed.demo.clocked MODULE --steps 1000000``

It is how the true iteration time is known of a script that was not written for it. The script goes through its
iterations by ``for step in range(steps)``. Here the name `range` is a function of ours in the script: the one range of
``--steps`` numbers reports each before the script takes it, and all other ranges are as ever. Its `--steps` must be a
number that no other range of it has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator

from whichrank.testbed.demo.launcher import run_program
from whichrank.testbed.demo.seat import Seat

_OPTION = "--steps"


def clocked(steps: int, begin: Callable[[int], None]) -> Callable[..., Iterable[int]]:
    """A `range` that calls `begin` with each number of ``range(steps)``, before it gives it out."""

    def reported() -> Iterator[int]:
        for number in range(steps):
            begin(number)
            yield number

    def of(*bounds: int) -> Iterable[int]:
        return reported() if bounds == (steps,) else range(*bounds)

    return of


def main() -> None:
    """Run the program named by the arguments."""
    command = sys.argv[1:]
    seat = Seat()
    seat.greet(int(os.environ["RANK"]))
    steps = int(command[command.index(_OPTION) + 1])
    run_program(command, {"range": clocked(steps, lambda number: seat.report("iteration", iteration=number))})


if __name__ == "__main__":
    main()
