"""What ranks do at this moment, as their agents reported it last: one table for each kind of row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.model.places import joined

Rows = np.ndarray[Any, Any]
Ints = NDArray[np.int64]


class Current:
    """Rows with a field `rank`. An agent's rows stand until it speaks again: it grows with what agents report at once.

    Args:
        dtype: Of the rows.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._of: dict[int, Rows] = {}
        self._joined: tuple[Rows, Ints] | None = None

    def put(self, agents: Ints, rows: Rows, agent_of: Ints) -> None:
        """Take what these agents say now, instead of what they said before.

        Args:
            agents: Their numbers.
            rows: Of their ranks; others are left out.
            agent_of: Which agent has reported the rank of each row.
        """
        order = np.argsort(agent_of, kind="stable")
        first, last = (np.searchsorted(agent_of[order], agents, side) for side in ("left", "right"))
        for agent, begin, end in zip(agents.tolist(), first.tolist(), last.tolist(), strict=True):
            self._of[agent] = rows[order[begin:end]]
        self._joined = None

    def forget(self, agent: int) -> None:
        """Forget what an agent has said."""
        self._of.pop(agent, None)
        self._joined = None

    def of(self, agents: Iterable[int]) -> Rows:
        """The rows of these agents."""
        return joined([self._of[agent] for agent in agents if agent in self._of], self._dtype)

    def all(self, agent_of_rank: Ints) -> Rows:
        """The rows of all agents, but none of a rank that another reports by now: what one said before it died.

        Args:
            agent_of_rank: By rank, the agent that reported it last.
        """
        if self._joined is None:
            sizes = [len(rows) for rows in self._of.values()]
            agents = np.repeat(np.array(list(self._of), np.int64), sizes)
            self._joined = joined(list(self._of.values()), self._dtype), agents
        rows, agents = self._joined
        own: Rows = rows[agent_of_rank[rows["rank"]] == agents]
        return own
