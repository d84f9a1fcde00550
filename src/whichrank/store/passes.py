"""In which part of its iteration a rank stands, and of which microbatch.

The backward passes that it has begun and done with say whether it is in one, before one, or behind the last one, and
messages in its pipeline say how far it is before. How many passes an iteration has, and how many operations come before
the first of them, is taken from the two before. Nothing is said of ranks that make no optimizer step: where their
iterations begin, by their operations, may be in the middle of a pass.

Where ranks of a pipeline hold several stages each, or nobody has said that it is a pipeline, it is said what follows
from the schedules that fit one of the two iterations before, of the rank and of others (`locate.interleaving`).

Example: a rank in the middle of a pipeline has sent three messages to the next stage since its step, and has begun one
backward pass of the usual four: forward, microbatch 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from whichrank.locate.interleaving import Interleaving, Part, agreed, interleavings, to_compare
from whichrank.store.communicators import Communicators
from whichrank.store.completed import Completed
from whichrank.store.pass_counts import (
    AHEAD,
    APART,
    ARRIVED,
    BEGUN,
    BETWEEN,
    COUNTED,
    IN_ORDER,
    LEAD,
    OVER,
    RETURNED,
    SIGN,
    PassCounts,
)

Rows = np.ndarray[Any, Any]
START: Final = "iteration start"
"""Between the optimizer's step and the first operation of the next iteration."""


class Passes:
    """Says where ranks stand.

    Args:
        comms: All communicators.
    """

    def __init__(self, comms: Communicators) -> None:
        self._comms, self._counts = comms, PassCounts(comms)

    def feed(self, passes: Rows, steps: Rows, done: Completed, flight: Rows) -> None:
        """Take what is new, see `PassCounts.feed`."""
        self._counts.feed(passes, steps, done, flight)

    def forget(self, rank: int) -> None:
        """The rank's process was replaced."""
        self._counts.forget(rank)

    def part_of(self, rank: int, ordinal: int) -> tuple[str, int | None] | None:
        """Phase and microbatch that a rank stands in; None where it is not known.

        Before its first operation in an iteration it may be in a forward pass, load data, evaluate or save something:
        that is called by its place. Behind the last pass is known if the two iterations before had equally many. A
        microbatch has a number where gradients of several are added up; in a pipeline where each rank holds one stage,
        and each message stands for a pass, or where the schedule is known.

        Args:
            rank: Which one.
            ordinal: Of the operation that it has begun last.
        """
        if rank >= len(self._counts.now) or not self._counts.step_ns[rank]:
            return None
        now, last, before = self._counts.now[rank], self._counts.last[rank], self._counts.before[rank]
        usual, has_numbers = self._usual(rank)
        done = [int(count) for count in now[list(IN_ORDER)]]
        if now[BEGUN] > now[OVER]:
            in_pass = self._agreed(rank, lambda one, place: one.stands_in(place, *done, in_pass=True))
            simple = int(now[BEGUN]) - 1 if has_numbers and now[BEGUN] <= usual else None
            return "backward", in_pass.microbatch if in_pass else simple
        if usual and now[BEGUN] == usual:
            return "optimizer", None
        begun_ops = ordinal - int(self._counts.step_at[rank])
        if usual and not now[:COUNTED].any() and begun_ops == 0:
            return START, None
        between = self._agreed(rank, lambda one, place: one.stands_in(place, *done, in_pass=False))
        if between is not None and begun_ops > 0:
            return ("forward", between.microbatch) if between.is_forward else None
        is_leading = now[BEGUN] == 0 and 0 < begun_ops <= last[LEAD] == before[LEAD]
        if not usual or now[BEGUN] > usual or not (now[BEGUN] or now[AHEAD] or is_leading):
            return None
        if self._counts.pipeline[rank] < 0:
            in_turn = now[BEGUN] > 0 or (last[BETWEEN] > 0 and before[BETWEEN] > 0)
            return "forward", int(now[BEGUN]) if has_numbers and in_turn else None
        if not has_numbers:
            return "forward", None
        number = int(now[AHEAD] if last[AHEAD] else now[ARRIVED] - 1)
        return ("forward", number) if 0 <= number < usual else None

    def part_of_message(self, rank: int, *, with_next: bool, is_sent: bool = False) -> tuple[str, int | None] | None:
        """Phase and microbatch of the message of its pipeline in which a rank waits; None where it is not known.

        From the next stage gradients come, from the one before what its forward pass has made. Where ranks hold several
        stages, the schedule says which it is. Of a message that the rank itself sends only the phase is known.

        Args:
            rank: Which one.
            with_next: The other end is the next rank.
            is_sent: The rank sends it.
        """
        if rank >= len(self._counts.now) or not self._counts.step_ns[rank] or self._counts.pipeline[rank] < 0:
            return None
        now = self._counts.now[rank]
        if self._counts.needs_schedule(rank):
            number, step = int(now[RETURNED if with_next else ARRIVED]), 1 if with_next else -1
            part = self._agreed(rank, lambda one, place: one.message((place + step) % one.ranks, place, number))
            return ("forward" if part.is_forward else "backward", part.microbatch) if part and not is_sent else None
        if is_sent:
            return "forward" if with_next else "backward", None
        usual, has_numbers = self._usual(rank)
        number = int(now[BEGUN if with_next else ARRIVED])
        return "backward" if with_next else "forward", number if has_numbers and number < usual else None

    def _usual(self, rank: int) -> tuple[int, bool]:
        """Backward passes of an iteration, 0 where the two before differ, and whether its microbatches have numbers."""
        last, before = self._counts.last[rank], self._counts.before[rank]
        usual = int(last[BEGUN]) if last[BEGUN] == before[BEGUN] else 0
        stands_for_pass = last[AHEAD if last[AHEAD] else ARRIVED] == usual
        is_simple = bool(stands_for_pass and not self._counts.needs_schedule(rank))
        if self._counts.pipeline[rank] < 0:
            is_simple = bool(last[APART] and before[APART])  # else several losses go backward one after the other
        return usual, usual > 1 and is_simple

    def _agreed(self, rank: int, say: Callable[[Interleaving, int], list[Part]]) -> Part | None:
        """What follows from all schedules that the pipeline of a rank may follow; None where nothing does.

        Args:
            rank: Of a pipeline, or not.
            say: What one schedule says of the rank at this place.
        """
        comm = int(self._counts.pipeline[rank])
        if comm < 0 or not self._counts.needs_schedule(rank):
            return None
        members = self._comms.members_of(comm)
        place = members.index(rank) if rank in members else -1
        places = to_compare(place, len(members)) if place >= 0 else []
        ranks = [members[at] for at in places]
        if any(not 0 <= other < len(self._counts.last) for other in ranks):
            return None
        signs = {
            at: {int(one[other, SIGN]) for one in (self._counts.last, self._counts.before)}
            for at, other in zip(places, ranks, strict=True)
        }
        possible = interleavings(len(members), int(self._counts.last[rank, BEGUN]), signs)
        return agreed(part for one in possible for part in say(one, place))
