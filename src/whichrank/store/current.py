"""What ranks do at this moment, as their agents reported it last: one table for each kind of row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.places import joined, taken
from whichrank.store.growing import Growing

Rows = np.ndarray[Any, Any]
Ints = NDArray[np.int64]


class Current:
    """Rows with a field `rank`. An agent's rows stand until it speaks again: it grows with what agents report at once.

    What several agents have said at one time is kept as one part, and let go when all of them have spoken again.

    Args:
        dtype: Of the rows.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._parts: dict[int, tuple[Rows, Ints]] = {}  # rows, and the agent of each
        self._agents_of: dict[int, int] = {}  # how many agents have not spoken since, by part
        self._part_of = Growing(np.int64)  # by agent, 0 none
        self._newest = 0
        self._is_joined = True

    def put(self, agents: Ints, rows: Rows, agent_of: Ints) -> None:
        """Take what these agents say now, instead of what they said before.

        Args:
            agents: Their numbers, each once.
            rows: Of their ranks; others are left out.
            agent_of: Which agent has reported the rank of each row.
        """
        if not len(rows) and not self._parts:
            return
        more = int(max(agents.max(initial=-1), agent_of.max(initial=-1))) + 1 - len(self._part_of.rows)
        if more > 0:
            self._part_of.append(more)
        self._let_go(agents)
        if len(rows):
            self._newest += 1
            self._part_of.rows[agents] = self._newest
            self._parts[self._newest], self._agents_of[self._newest] = (rows, agent_of), len(agents)

    def forget(self, agent: int) -> None:
        """Forget what an agent has said."""
        if 0 <= agent < len(self._part_of.rows):
            self._let_go(np.array([agent]))

    def _let_go(self, agents: Ints) -> None:
        """What these agents have said holds no more."""
        self._is_joined = False
        parts, count = np.unique(self._part_of.rows[agents], return_counts=True)
        for part, n in zip(parts.tolist(), count.tolist(), strict=True):
            if part:
                self._agents_of[part] -= n
                if not self._agents_of[part]:
                    del self._parts[part], self._agents_of[part]
        self._part_of.rows[agents] = 0

    def all(self, agent_of_rank: Ints) -> Rows:
        """The rows of all agents, but none of a rank that another reports by now: what one said before it died.

        Args:
            agent_of_rank: By rank, the agent that reported it last.
        """
        if not self._parts:
            return np.zeros(0, self._dtype)
        if not self._is_joined:
            self._join()
        ((rows, agents),) = self._parts.values()
        return taken(rows, agent_of_rank[rows["rank"]] == agents)

    def _join(self) -> None:
        """Make one part of all, without what agents have said before they spoke again."""
        sizes = [len(rows) for rows, _ in self._parts.values()]
        agents = np.concatenate([agents for _, agents in self._parts.values()])
        rows = joined([rows for rows, _ in self._parts.values()], self._dtype)
        stands = (agents >= 0) & (self._part_of.rows[agents] == np.repeat(list(self._parts), sizes))
        self._newest += 1
        self._part_of.rows[self._part_of.rows > 0] = self._newest
        self._agents_of = {self._newest: sum(self._agents_of.values())}
        self._parts = {self._newest: (taken(rows, stands), agents[stands])}
        self._is_joined = True
