"""What agents say now stands until they speak again, in whatever groups they speak."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.store.current import Current

ROW = np.dtype([("rank", "i8"), ("said", "i8")])
AGENTS, RANKS = 7, 21


def rows(said: list[tuple[int, int]]) -> np.ndarray:
    return np.array(said, ROW)


def listed(current: Current, agent_of_rank: np.ndarray) -> list[tuple[int, int]]:
    return sorted(map(tuple, current.all(agent_of_rank).tolist()))


@pytest.mark.parametrize("seed", range(8))
def test_as_if_each_agent_had_a_table_of_its_own(seed: int) -> None:
    # GIVEN agents that speak in groups of any size, say nothing now and then, are forgotten, and pass on ranks
    rng = np.random.default_rng(seed)
    current, alone = Current(ROW), dict[int, list[tuple[int, int]]]()
    agent_of_rank = np.arange(RANKS) % AGENTS
    for turn in range(300):
        if rng.random() < 0.1:
            agent_of_rank[rng.integers(RANKS)] = rng.integers(AGENTS)
        if rng.random() < 0.05:
            agent = int(rng.integers(AGENTS))
            current.forget(agent)
            alone.pop(agent, None)
        speaking = rng.permutation(AGENTS)[: rng.integers(1, AGENTS + 1)]
        said = [(int(r), turn) for r in rng.permutation(RANKS)[: rng.integers(0, RANKS)]]
        current.put(speaking, rows(said), agent_of_rank[[r for r, _ in said]])
        for agent in speaking.tolist():
            alone[agent] = [(r, at) for r, at in said if agent_of_rank[r] == agent]
        if rng.random() < 0.7:
            expected = [one for agent, of in alone.items() for one in of if agent_of_rank[one[0]] == agent]
            assert listed(current, agent_of_rank) == sorted(expected), turn
    assert len(current._parts) <= AGENTS


def test_nothing_was_said() -> None:
    current = Current(ROW)
    assert not len(current.all(np.zeros(3, np.int64)))
    current.put(np.array([0]), rows([]), np.zeros(0, np.int64))
    current.forget(5)
    assert not len(current.all(np.zeros(3, np.int64)))
