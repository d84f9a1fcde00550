"""What slow links cost a job: whether ranks wait for what goes over them, and how long iterations would be without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from whichrank.locate.critical_path import Course
from whichrank.locate.link_times import LinkTime, with_links_that_fit
from whichrank.model.iterations import Window
from whichrank.model.links import SlowLink

WAITED: Final = 0.05
"""Share of an iteration for which ranks are blocked in what goes over a link, from which it matters."""


class LinkCost:
    """Asked about the links of one window; its iterations are gone through only if somebody asks.

    Args:
        window: The iterations of this time.
        course: The same as events, None where they are not kept.
        before_s: What iterations took while all was well, infinite where that is not known.

    Attributes:
        repaired: Iterations with slow links as they are, and as they usually are; None where that is not known.
    """

    def __init__(self, window: Window, course: Callable[[], Course | None], before_s: float = np.inf) -> None:
        self._before_s = before_s
        self._window = window
        self._course = course
        self.repaired: tuple[Course, Course] | None = None

    def is_waited_for(self, src: int, dst: int) -> bool:
        """Are these ranks blocked in operations of both? Transfers behind computation delay nobody."""
        course, ends = self._course(), self._places([(src, dst)])
        if course is None or ends is None:
            return True  # it is not known
        return course.blocked_between(*ends[0]) >= WAITED * self._window.iteration_s

    def seconds(self, links: Sequence[SlowLink]) -> tuple[float, float] | None:
        """What an iteration takes, and what it would take if these links were as quick as usual; None: not known.

        The usual rate of a link may be that at which data were read that lay ready, far above what it carries. So it is
        never said that an iteration would be shorter than iterations were before.
        """
        course, ends = self._course(), self._places([(link.src, link.dst) for link in links])
        if course is None or ends is None:
            return None
        each = [LinkTime(*pair, min(link.rate / link.usual, 1.0)) for link, pair in zip(links, ends, strict=True)]
        self.repaired = with_links_that_fit(course, each)
        if self.repaired is None:
            return None
        now_s, usual_s = (one.replay() for one in self.repaired)
        quick_s = course.recorded_s - (now_s - usual_s)
        return course.recorded_s, max(quick_s, self._before_s) if self._before_s < course.recorded_s else quick_s

    def _places(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
        """Indices of ranks; None if the window has one of them not."""
        ranks = self._window.ranks
        of = np.array(pairs, np.int64).reshape(-1, 2)
        at = np.searchsorted(ranks, of)
        if (at == len(ranks)).any() or (ranks[at] != of).any():
            return None
        return [(int(src), int(dst)) for src, dst in at]
