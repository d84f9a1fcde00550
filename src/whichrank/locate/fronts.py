"""On which of its operations in flight a rank is blocked, where nobody saw a thread wait (DESIGN 5.1, the frontiers).

On devices the host issues far ahead, and what is in flight may just stand in line behind something else. So of a
rank's operations the one blocks that cannot end: the oldest that another has not issued. One that has ended for others
comes first: the rank was past all that it had issued before, and does not see the end. Then comes one whose members
have issued what cannot meet. A send comes after all others, since whoever sends seldom waits for it. Where all of its
operations have been issued by all, it is the oldest: that is what its device works on, or would.

What is found is inferred. So no cycle of such waits is claimed, and an operation that was posted early may stand for
the one that blocks: among victims that leads on to the same end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from whichrank.locate.signatures import contradictions
from whichrank.locate.waitgraph import edges_of, overtaken
from whichrank.model.codes import UNNUMBERED, WaitHow
from whichrank.model.kinds import Kind, is_message
from whichrank.model.picture import WAITS, Bools, Ints, Picture

OVERTAKEN, CONTRADICTS, SURE, UNREAD, SENDS, OLDEST = range(6)
"""Why an operation does not end, the best reason first: it has, for others; it contradicts what others issued; another
that was read has not issued it; one may not have that was not read; the same of a send; no reason is known."""
_SHARED = ("rank", "comm", "counter", "kind", "peer", "tag", "dtype", "reduce_op", "count", "issue_s")


def with_fronts(picture: Picture) -> Picture:
    """The picture, with a wait for each rank that has operations in flight and no wait that a sensor reported.

    Where sensors look, it stays as it is.
    """
    if picture.recorded is None:
        return picture
    waits_already = np.zeros(picture.world_size, np.bool_)
    waits_already[picture.waits["rank"]] = True
    rows = picture.ops["rank"]
    mine = np.flatnonzero(~picture.ops["failed"] & ~waits_already[rows] & picture.fresh[rows])
    if not len(mine):
        return picture
    ops = picture.ops[mine]
    waits = np.zeros(len(ops), WAITS)
    for name in _SHARED:
        waits[name] = ops[name]
    waits["since_s"], waits["how"], waits["tid"] = ops["issue_s"], WaitHow.FUTURE, picture.main_tid[ops["rank"]]
    all_waiting = replace(picture, waits=waits)
    edges, rows, demand = edges_of(all_waiting, np.arange(len(waits)))
    why_of = np.full(int(demand.max()) + 1, OLDEST)
    why_of[edges.demand] = UNREAD
    why_of[edges.demand[edges.known]] = SURE
    why = np.empty(len(waits), np.int64)
    why[rows] = why_of[demand]
    why[(waits["kind"] == Kind.SEND) & (why < SENDS)] = SENDS
    why[_may_be_answered(waits, ops["ordinal"]) & (why < SENDS)] = OLDEST
    for one in contradictions(picture):
        in_it = (ops["comm"] == one.comm) & (ops["counter"] == one.counter) & np.isin(ops["rank"], one.ranks)
        why[in_it & np.isin(ops["kind"], one.ops["kind"])] = CONTRADICTS
    why[overtaken(all_waiting, np.arange(len(waits)))] = OVERTAKEN
    order = np.lexsort((ops["ordinal"], why, ops["rank"]))
    _, first = np.unique(ops["rank"][order], return_index=True)
    return replace(picture, waits=np.concatenate((picture.waits, waits[order[first]])))


def _may_be_answered(waits: np.ndarray[Any, Any], ordinal: Ints) -> Bools:
    """Messages that are counted from the last complete one, and stand in line behind something else.

    The other end may have long sent what this one has not begun to receive.
    """
    _, rank = np.unique(waits["rank"], return_inverse=True)
    oldest = np.full(int(rank.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(oldest, rank, ordinal)
    return np.asarray(is_message(waits["kind"]) & (waits["counter"] >= UNNUMBERED) & (ordinal > oldest[rank]))
