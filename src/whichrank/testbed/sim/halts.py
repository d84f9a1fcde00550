"""Jobs that stand still at any scale: one rank, a whole node, a ring of ranks or nobody is the reason.

`faults` draws what one rank does by chance; here the place is given, so that the same halt can be measured at each size
of a job. Each halt is a change of the run, of the records of its last iteration, and of what agents report afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from whichrank.model.kinds import Kind
from whichrank.model.telemetry import ProcessState
from whichrank.testbed.sim.faults import KILLED
from whichrank.testbed.sim.program import TP, WORLD, Do, Item
from whichrank.testbed.sim.run import Floats, Iteration, Run
from whichrank.testbed.sim.states import Process
from whichrank.testbed.sim.telemetry import Agents

Ints = NDArray[np.int64]
Where = Literal["tp", "world", "deadlock", "lost message", "left out", "dead node", "lost node", "silent node"]
WHERE: Final[tuple[Where, ...]] = (
    "tp", "world", "deadlock", "lost message", "left out", "dead node", "lost node", "silent node"
)  # fmt: skip
RING: Final = 64
"""Ranks of a deadlock, at most."""


@dataclass(frozen=True)
class Halt:
    """Where a job stops.

    Attributes:
        where: `tp`: the rank does not enter its first tensor-parallel operation of the iteration. `world`: nor the one
            of all ranks. `deadlock`: the first ranks, up to `RING`, each receive from the next one, where all others
            enter the operation of all ranks. `lost message`: the rank sends its first message, which never comes.
            `left out`: the rank does not enter its last tensor-parallel operation and goes on. `dead node`: all
            processes of its node are killed before that operation. `lost node`: the same, and the node answers nobody.
            `silent node`: the rank hangs as in `tp`, and the agent of its node reports no more.
        rank: Which one.
        onset: The iteration.
        per_node: Consecutive ranks of a node.
    """

    where: Where
    rank: int
    onset: int
    per_node: int = 8

    @property
    def node(self) -> int:
        """That of the rank."""
        return self.rank // self.per_node

    def ring(self, run: Run) -> Ints:
        """Ranks of a deadlock."""
        return np.arange(min(RING, run.layout.ranks))

    def at_fault(self, run: Run) -> frozenset[int]:
        """The ranks that may be named, and no others; empty: nobody."""
        if self.where in ("dead node", "lost node"):
            first = self.node * self.per_node
            return frozenset(range(first, min(first + self.per_node, run.layout.ranks)))
        is_known = self.where in ("tp", "world", "left out")
        return frozenset({self.rank} if is_known else ())

    def install(self, run: Run) -> None:
        """From the onset on the run stands still."""
        own = run.programs[self.rank // run.layout.per_stage]
        ranks = np.array([self.rank])
        if self.where in ("tp", "silent node", "dead node", "lost node"):
            items = [next(one for one in own if one.do is Do.OWN)]
            ranks = np.array(sorted(self.at_fault(run))) if self.where in ("dead node", "lost node") else ranks
            run.slower = partial(self._never, items, ranks)
        elif self.where == "lost message":
            items = [next(one for one in own if one.do is Do.SEND)]
            run.longer = partial(self._never, items, ranks)
        elif self.where == "left out":
            items = [[one for one in own if one.do is Do.SHARE and one.slot == TP][-1]]
            run.enters, run.leaver = partial(self._never, items, ranks), self.rank
        else:
            items = [one for of_stage in run.programs for one in of_stage if one.do is Do.SHARE and one.slot == WORLD]
            ranks = self.ring(run) if self.where == "deadlock" else ranks
            run.enters = partial(self._never, items, ranks)

    def _never(self, items: list[Item], ranks: Ints, iteration: int, item: Item, stage: int, seconds: Floats) -> Floats:
        """A `run.Change`: for these ranks these items take for ever."""
        if iteration == self.onset and any(item is one for one in items):
            seconds[ranks[ranks // len(seconds) == stage] % len(seconds)] = np.inf
        return seconds

    def correct(self, run: Run, iteration: Iteration) -> None:
        """Make the records of the onset those of what the ranks have done instead."""
        if iteration.number != self.onset:
            return
        n = run.layout.per_stage
        ops, place = iteration.ops[self.rank // n], self.rank % n
        if self.where == "left out":
            left = np.flatnonzero((ops["comm_slot"][place] == TP) & (ops["t_issue_ns"][place] == 0))[0]
            ops["ordinal"][place, left + 1 :] -= 1
            ops["seq"][place, left + 1 :] -= 1
        elif self.where == "deadlock":
            ring = self.ring(run)
            for rank, peer in zip(ring.tolist(), np.roll(ring, -1).tolist(), strict=True):
                before, row = iteration.ops[rank // n][rank % n, -2:]  # the operation of all ranks is the last one
                row["kind"], row["peer"], row["counter"] = Kind.RECV, peer, 1
                row["t_issue_ns"] = row["t_start_ns"] = before["t_end_ns"]

    def report(self, run: Run, agents: Agents, at_s: float) -> None:
        """From now on agents report what comes of it.

        Args:
            run: The job.
            agents: Its agents.
            at_s: When it happened, by the true clock.
        """
        if self.where in ("dead node", "lost node"):
            if self.where == "lost node":
                agents.lose(self.node, at_s)
                return
            for rank in self.at_fault(run):
                agents.change(rank, Process(ProcessState.GONE, at_s, KILLED))
        elif self.where == "silent node":
            agents.silence(self.node)
