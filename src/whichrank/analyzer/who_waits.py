"""Who waits for whom, for people: waits that are alike, and how far each rank is from the end of its chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichrank.analyzer.diagnosis import Diagnosis
from whichrank.locate.fronts import with_fronts
from whichrank.locate.waitgraph import build
from whichrank.model.picture import Ints, Picture
from whichrank.model.rows import Kind


@dataclass(frozen=True)
class Waiting:
    """Ranks that wait in operations that are called alike, at the same distance from the end of a chain.

    Attributes:
        what: The operation in words.
        operations: How many there are, on communicators that are described alike.
        ranks: Who waits.
        targets: For whom.
        distance: Steps from the first of them to who waits for nobody; 0 where that is not so.
    """

    what: str
    operations: int
    ranks: Ints
    targets: Ints
    distance: int


def who_waits(diagnosis: Diagnosis, picture: Picture) -> tuple[Waiting, ...]:
    """All waits of a picture that are for somebody, the nearest to the end of a chain first.

    Args:
        diagnosis: For words.
        picture: The job; where nobody saw a thread wait, its fronts are looked for.
    """
    picture = with_fronts(picture)
    graph = build(picture, 0.0)
    if not len(graph.edges.demand):
        return ()
    waits = picture.waits[graph.waits]
    distance = _distances(picture.world_size, graph.edges.demand, graph.edges.target, graph.demand, waits["rank"])
    found: dict[tuple[str, int], tuple[list[Ints], list[Ints]]] = {}
    for demand in np.unique(graph.edges.demand).tolist():
        rows = waits[graph.demand == demand]
        if not len(rows):
            continue
        comm = diagnosis.comm_name(int(rows[0]["comm"]))
        kind, is_message = int(rows[0]["kind"]), rows[0]["kind"] >= Kind.SEND
        what = f"{Kind(kind).name.lower() if is_message else diagnosis.op_name(rows[0])} on {comm}"
        ranks, targets = found.setdefault((what, int(distance[rows["rank"]].min())), ([], []))
        ranks.append(rows["rank"])
        targets.append(graph.edges.target[graph.edges.demand == demand])
    said = [
        Waiting(what, len(ranks), np.unique(np.concatenate(ranks)), np.unique(np.concatenate(targets)), steps)
        for (what, steps), (ranks, targets) in found.items()
    ]
    return tuple(sorted(said, key=lambda one: (one.distance == 0, one.distance, -len(one.ranks))))


def _distances(size: int, demand: Ints, target: Ints, demand_of: Ints, waiter: Ints) -> Ints:
    """Steps from each rank to one that waits for nobody; 0 of these, and of those on no such chain.

    Args:
        size: Ranks.
        demand: Of each edge.
        target: Of each edge.
        demand_of: Of each wait.
        waiter: The rank of each wait.
    """
    distance = np.zeros(size, np.int64)
    waits = np.zeros(size, np.bool_)
    waits[waiter] = True
    reached = np.zeros(size, np.bool_)
    reached[target[(target >= 0)]] = True
    reached &= ~waits
    for step in range(1, size + 1):
        next_demands = np.unique(demand[(target >= 0) & reached[np.maximum(target, 0)]])
        ranks = np.unique(waiter[np.isin(demand_of, next_demands)])
        ranks = ranks[~reached[ranks]]
        if not len(ranks):
            break
        distance[ranks] = step
        reached[ranks] = True
    return distance
