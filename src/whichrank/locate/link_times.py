"""What if a link had been as quick as usual? Iterations are gone through again with other transfers.

How long a message takes shows by the records of its two ends only if the receiver was early. So of a link that is
known to be slow its time is taken from the kernel: what it carries, by the rate at which it carries that. Messages
share it by their sizes, and come one after the other. A collective that crosses it has waited for it already, and is
made as much quicker as the link.

Whether that is what happened shows at once: with these transfers the iterations must take as long as they did. If they
do not, nothing is said of what they would take.

Example: 2 MB in each iteration at 50 MB/s instead of the usual 200 MB/s, in two messages of 1 MB: each takes 20 ms, and
would take 5 ms. If the receiver has other work for 10 ms meanwhile, an iteration is 20 ms longer, not 30.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from whichrank.locate.critical_path import ISSUE, Course
from whichrank.model.iterations import Floats, Ints
from whichrank.model.kinds import Kind, is_collective

FITS: Final = 0.1
"""Share by which iterations may differ from those that were measured, for what is made of them to be believed."""


@dataclass(frozen=True)
class LinkTime:
    """What a link takes in each iteration.

    Attributes:
        src: Index of the sending rank.
        dst: Index of the receiving one.
        now_s: Seconds for which it carries something.
        usual_s: The same at its usual rate.
    """

    src: int
    dst: int
    now_s: float
    usual_s: float


def with_links(course: Course, links: Sequence[LinkTime]) -> tuple[Course, Course]:
    """Iterations with these links as slow as they are, and with all of them as they usually are."""
    now_s, usual_s, after = course.alone_s.copy(), course.alone_s.copy(), course.after.copy()
    now_transfer_s, usual_transfer_s = course.transfer_s.copy(), course.transfer_s.copy()
    kind = np.full(len(course.members), -1, np.int64)
    issues = np.flatnonzero((course.what == ISSUE) & (course.round >= 0))
    kind[course.round[issues]] = course.ops["kind"][course.op[issues]]
    for link in links:
        messages, weight = _messages(course, link)
        if len(messages):
            share = weight / max(weight.sum(), 1.0) * course.iterations
            now_s[messages], usual_s[messages] = share * link.now_s, share * link.usual_s
            now_transfer_s[messages], usual_transfer_s[messages] = now_s[messages], usual_s[messages]
            after[messages[1:]] = messages[:-1]
        of_src, of_dst = (course.round[_issues_of(course, end)] for end in (link.src, link.dst))
        both = np.intersect1d(of_src, of_dst)
        crossing = both[(both >= 0) & is_collective(kind[both])]
        factor = link.usual_s / link.now_s if link.now_s > 0 else 1.0
        usual_s[crossing] *= factor
        usual_transfer_s[crossing] *= factor
    now = replace(course, alone_s=now_s, transfer_s=now_transfer_s, after=after)
    return now, replace(now, alone_s=usual_s, transfer_s=usual_transfer_s)


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


def _messages(course: Course, link: LinkTime) -> tuple[Ints, Floats]:
    """Rounds of messages that go over a link, in the order in which they are sent, and how large each is."""
    issues = _issues_of(course, link.src)
    op = course.op[issues]
    mine = (course.ops["kind"][op] == Kind.SEND) & (course.ops["peer"][op] == course.ranks[link.dst])
    rounds, elements = course.round[issues[mine]], course.elements[issues[mine]]
    return rounds[rounds >= 0], elements[rounds >= 0]
