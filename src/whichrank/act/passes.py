"""Which links of a communicator are tested when, so that none is in the way of another.

In a pass each member sends to one other or receives from one. Two passes go round an even ring, three round an odd one,
and as many along a tree as one of its members has neighbours, however many members there are: four where each has
a parent, two children and a partner. Source: Greyhound, section 4.3 and figure 10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from whichrank.model.rows import PASSES

Link = tuple[int, int]
"""Sender and receiver, as places in the communicator."""
Pass = tuple[Link, ...]
"""Links that are tested at one time: no place twice."""
IN_USE: Final = 0.1
"""Share of what went over the busiest link of a communicator, from which one is in use: over all of them some bytes go
when the communicator is made."""


def ring(size: int) -> list[Link]:
    """Each member to its next one."""
    return [(at, (at + 1) % size) for at in range(size)] if size > 1 else []


def in_use(carried: Mapping[int, Mapping[int, int]], members: tuple[int, ...]) -> list[Link]:
    """The links of a communicator over which it works, if they are known of all its members; else nothing.

    What goes from rank to rank is known of pairs of ranks, not of communicators: pairs that work together in another
    one as well are taken for links of this one.

    Args:
        carried: Bytes, by sending and by receiving rank.
        members: Global ranks by place.
    """
    place = {rank: at for at, rank in enumerate(members)}
    within = [
        (place[src], place[dst], size) for src in members for dst, size in carried.get(src, {}).items() if dst in place
    ]
    least = IN_USE * max((size for _, _, size in within), default=0)
    links = [(src, dst) for src, dst, size in within if size >= least and src != dst]
    return links if {at for link in links for at in link} == set(place.values()) else []


def passes_over(links: Iterable[Link], most: int = PASSES) -> list[Pass]:
    """Put each link into the first pass in which both its ends have nothing to do.

    Links are taken as one walks along them: so of a ring, which two or three passes hold, no third or fourth is begun.

    Args:
        links: Each once.
        most: Passes; what does not fit is left out.
    """
    at_place: dict[int, list[Link]] = defaultdict(list)
    for link in links:
        for end in link:
            at_place[end].append(link)
    passes: list[list[Link]] = []
    busy: list[set[int]] = []
    taken: set[Link] = set()
    for start in sorted(at_place):
        ahead = [start]
        while ahead:
            place = ahead.pop()
            for link in at_place[place]:
                if link in taken:
                    continue
                taken.add(link)
                ahead.append(link[0] if link[1] == place else link[1])
                free = next((one for one, ends in enumerate(busy) if ends.isdisjoint(link)), len(busy))
                if free == len(busy) < most:
                    passes.append([])
                    busy.append(set())
                if free < len(busy):
                    passes[free].append(link)
                    busy[free].update(link)
    return [tuple(one) for one in passes]
