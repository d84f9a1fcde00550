"""Nodes that are not heard, or that other nodes do not reach, while others wait for their ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whichrank.hang.case import Case
from whichrank.locate.waitgraph import WaitGraph, oldest_wait
from whichrank.model.finding import Finding
from whichrank.model.picture import Picture
from whichrank.transport.reach import out_of_reach


def unreachable(case: Case, picture: Picture, graph: WaitGraph) -> Finding | None:
    """The nodes that `transport.reach` has found, with what others wait in."""
    away = out_of_reach(case.store.paths, picture, graph.waiting, case.store.ranks.agent)
    if away is None:
        return None
    wait = oldest_wait(picture, graph)
    victims = tuple(int(r) for r in graph.waiting if int(r) not in away.names)
    onset_s = min(float(wait["since_s"]), away.onset_s or np.inf)
    return replace(away, comm=int(wait["comm"]), op=case.op_of(wait), victims=victims, onset_s=onset_s)
