"""What if a link had been as quick as usual? Iterations are gone through again with other transfers.

A message takes as long as it does for the later one of its two ends. That may be too long where a send is waited for
late, so `Course` takes messages to be as short as the quickest of their size. On a link that is known to be slow they
are not: there each takes what it took, and with the link as usual as much less as the link is quicker. So does a
collective that crosses it.

Whether that is what happened shows at once: with these transfers the iterations must take about as long as they did. If
they do not, nothing is said of what they would take.

Example: a link goes at 50 MB/s instead of the usual 200 MB/s, and each iteration has two messages of 1 MB on it: each
takes 20 ms, and would take 5 ms. If the receiver has other work for 10 ms meanwhile, that saves 20 ms, not 30.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from whichrank.locate.critical_path import ISSUE, Course
from whichrank.model.iterations import Ints
from whichrank.model.kinds import Kind, is_collective

FITS: Final = 0.2
"""Share by which iterations may differ from those that were measured, for what is made of them to be believed. Gone
through again they are mostly some percent shorter: ranks that share a core do not begin at once what they can begin."""


@dataclass(frozen=True)
class LinkTime:
    """By how much a link is slower than usual.

    Attributes:
        src: Index of the sending rank.
        dst: Index of the receiving one.
        share: Of its usual rate that it has, from 0 to 1.
    """

    src: int
    dst: int
    share: float


def with_links(course: Course, links: Sequence[LinkTime]) -> tuple[Course, Course]:
    """Iterations with these links as slow as they are, and with all of them as they usually are."""
    now_s, usual_s = course.alone_s.copy(), course.alone_s.copy()
    is_message = np.zeros(len(course.members), np.bool_)
    issues = np.flatnonzero((course.what == ISSUE) & (course.round >= 0))
    is_message[course.round[issues]] = ~is_collective(course.ops["kind"][course.op[issues]])
    for link in links:
        messages = _messages(course, link)
        now_s[messages] = course.shortest_s[messages]
        usual_s[messages] = link.share * now_s[messages]
        of_src, of_dst = (course.round[_issues_of(course, end)] for end in (link.src, link.dst))
        both = np.intersect1d(of_src, of_dst)
        crossing = both[(both >= 0) & ~is_message[both]]
        usual_s[crossing] = np.minimum(usual_s[crossing], link.share * now_s[crossing])
    return replace(course, alone_s=now_s), replace(course, alone_s=usual_s)


def with_links_that_fit(course: Course, links: Sequence[LinkTime]) -> tuple[Course, Course] | None:
    """As `with_links`, if iterations with these links as slow as they are take as long as they did by the records."""
    now, usual = with_links(course, links)
    now_s, usual_s = now.replay(), usual.replay()
    fits = abs(now_s - course.recorded_s) <= FITS * course.recorded_s and usual_s <= now_s
    return (now, usual) if fits else None


def _issues_of(course: Course, index: int) -> Ints:
    """Events in which a rank issues an operation, in order."""
    first, last = int(course.first[index]), int(course.first[index + 1])
    return first + np.flatnonzero(course.what[first:last] == ISSUE)


def _messages(course: Course, link: LinkTime) -> Ints:
    """Rounds of messages that go over a link."""
    issues = _issues_of(course, link.src)
    op = course.op[issues]
    mine = (course.ops["kind"][op] == Kind.SEND) & (course.ops["peer"][op] == course.ranks[link.dst])
    rounds = course.round[issues[mine]]
    return np.asarray(rounds[rounds >= 0])
