"""Who waits for whom, for people: waits that are alike, and how far each rank is from the end of its chain.

Every rank that waits is in one `Waiting`, so their counts add up to the number of waiting ranks. That holds also where
the wait-for graph has no edge: for a message whose other end has posted it, and for a round that all have entered. No
rank can be held responsible for such a wait, and it still has to be shown.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from whichrank.hang.case import Case
from whichrank.locate.fronts import with_fronts
from whichrank.locate.waitgraph import WaitGraph, build
from whichrank.model.kinds import Kind, is_message
from whichrank.model.picture import Ints, Picture

_NOBODY = np.zeros(0, np.int64)
_ANY_AGE_S = -np.inf


@dataclass(frozen=True)
class Waiting:
    """Ranks that wait in operations that are called alike, at the same distance from the end of a chain.

    Attributes:
        what: The operation in words.
        operations: How many there are, on communicators that are described alike.
        ranks: Who waits, ascending. No rank is in two of these.
        targets: For whom, ascending; empty where all have entered the operation.
        distance: Steps from these ranks to one that waits for nobody; 0 where there is none, as in a cycle.
    """

    what: str
    operations: int
    ranks: Ints
    targets: Ints
    distance: int


def who_waits(case: Case, picture: Picture) -> tuple[Waiting, ...]:
    """All ranks that wait in a picture, the nearest to the end of a chain first.

    A rank with several threads that wait is shown with the wait that is nearest to the end of a chain. Example: rank 3
    has not entered an all-reduce of ranks 2 and 3, and ranks 0 and 1 wait for rank 2. Then rank 2 waits for rank 3 at
    distance 1, and ranks 0 and 1 wait for rank 2 at distance 2.

    Args:
        case: For words.
        picture: The job; where nobody saw a thread wait, its fronts are looked for.
    """
    picture = with_fronts(picture)
    graph = build(picture, _ANY_AGE_S)
    targets = _targets(picture, graph)
    rank = picture.waits["rank"][graph.waits]
    steps = _steps(picture.world_size, graph.demand, rank, targets)
    # Of each rank the wait that is nearest to the end, those on no chain last.
    order = np.lexsort((np.where(steps == 0, picture.world_size + 1, steps), rank))
    chosen = order[np.unique(rank[order], return_index=True)[1]]
    found: dict[tuple[str, int, bool], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    names: dict[int, str] = {}
    for at in chosen.tolist():
        demand = int(graph.demand[at])
        if demand not in names:
            names[demand] = _name(case, picture.waits[graph.waits[at]])
        found[names[demand], int(steps[at]), len(targets[demand]) > 0][demand].append(int(rank[at]))
    said = [
        Waiting(
            what, len(by_demand), np.array(sorted(r for of in by_demand.values() for r in of), np.int64),
            np.unique(np.concatenate([targets[demand] for demand in by_demand])), distance,
        )
        for (what, distance, _), by_demand in found.items()
    ]  # fmt: skip
    return tuple(sorted(said, key=lambda one: (one.distance == 0, one.distance, -len(one.ranks), one.what)))


def among(waits: tuple[Waiting, ...], ranks: Ints) -> tuple[Waiting, ...]:
    """The same waits with only these ranks in them; what none of them waits in is left out."""
    fewer = []
    for one in waits:
        if len(left := np.intersect1d(one.ranks, ranks)):
            fewer.append(replace(one, ranks=left, operations=min(one.operations, len(left))))
    return tuple(fewer)


def _name(case: Case, wait: np.void) -> str:
    what = Kind(int(wait["kind"])).name.lower() if is_message(wait["kind"]) else case.op_name(wait)
    return f"{what} on {case.comm_name(int(wait['comm']))}"


def _targets(picture: Picture, graph: WaitGraph) -> dict[int, Ints]:
    """For whom each demand waits: its edges, else the other end of a message; nobody in a round that all entered."""
    found = dict.fromkeys(np.unique(graph.demand).tolist(), _NOBODY)
    order = np.argsort(graph.edges.demand, kind="stable")
    demands, first = np.unique(graph.edges.demand[order], return_index=True)
    for demand, targets in zip(demands.tolist(), np.split(graph.edges.target[order], first)[1:], strict=True):
        found[demand] = np.unique(targets[targets >= 0])
    for row, demand in zip(picture.waits[graph.waits], graph.demand.tolist(), strict=True):
        if not len(found[demand]) and row["kind"] in (Kind.SEND, Kind.RECV):
            other = picture.group_rank_to_rank(int(row["comm"]), int(row["peer"]))
            found[demand] = np.array([other] if other >= 0 and other != row["rank"] else [], np.int64)
    return found


def _steps(size: int, demand_of: Ints, waiter: Ints, targets: dict[int, Ints]) -> Ints:
    """Steps from each wait to a rank that waits for nobody; 0 of waits on no such chain.

    Args:
        size: Ranks.
        demand_of: Of each wait.
        waiter: The rank of each wait.
        targets: Of each demand.
    """
    waits = np.zeros(size, np.bool_)
    waits[waiter] = True
    demand = np.repeat(list(targets), [len(of) for of in targets.values()]) if targets else _NOBODY
    target = np.concatenate([*targets.values(), _NOBODY])
    reached = np.zeros(size, np.bool_)
    reached[target] = True
    reached &= ~waits
    steps = np.zeros(len(waiter), np.int64)
    for step in range(1, size + 1):
        leads = np.isin(demand_of, np.unique(demand[reached[target]])) & (steps == 0)
        if not leads.any():
            break
        steps[leads] = step
        reached[waiter[leads]] = True
    return steps
