"""Who is to be in which place: against all orders of small jobs, and against what is best by hand of large ones."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import numpy as np
import pytest

from whichrank.act import topology
from whichrank.act.topology import Cluster, best_order, iterations_s


def cluster(
    stages: int, replicas: int, tensor: int = 1, slow: Mapping[int, float] | None = None,
    links: Mapping[tuple[int, int], float] | None = None, node_ranks: int = 1, work_s: float = 0.8,
) -> Cluster:  # fmt: skip
    """Places by stage, replica, tensor rank; gradients go round among replicas, activations from stage to stage."""
    place = np.arange(stages * replicas * tensor)
    stage, replica, of_unit = place // (replicas * tensor), place // tensor % replicas, place % tensor
    at = lambda s, r: (s % stages * replicas + r % replicas) * tensor + of_unit  # noqa: E731
    sender, receiver, size = [], [], []
    if replicas > 1:
        sender, receiver, size = [place], [at(stage, replica + 1)], [np.full(len(place), 1e9)]
    if stages > 1:
        inner = stage < stages - 1
        sender.append(place[inner])
        receiver.append(at(stage + 1, replica)[inner])
        size.append(np.full(inner.sum(), 1e7))
    factor = np.ones(len(place))
    for rank, times in (slow or {}).items():
        factor[rank] = times
    return Cluster(
        stage, replica, np.full(stages, work_s), factor, place // node_ranks, 8, np.concatenate(sender),
        np.concatenate(receiver), np.concatenate(size), 1e-11, links or {},
    )  # fmt: skip


def takes(job: Cluster, order: np.ndarray) -> float:
    return float(iterations_s(job, order[None])[0])


def test_two_slow_ranks_of_a_replica_come_to_different_ones_in_the_same_stage_or_not() -> None:
    # GIVEN two stages of two replicas, of which one has both slow ranks
    job = cluster(2, 2, slow={0: 2.0, 2: 2.0})
    order = best_order(job, np.arange(4))
    assert takes(job, np.arange(4)) - takes(job, order) == pytest.approx(0.1)
    # THEN each replica has one, and only two ranks are elsewhere
    assert {int(job.replica[order.tolist().index(rank)]) for rank in (0, 2)} == {0, 1}
    assert (order != np.arange(4)).sum() == 2


def test_heavy_traffic_leaves_a_slow_link() -> None:
    # GIVEN gradients over a link that takes a hundred times as long
    job = cluster(2, 4, links={(1, 2): 1e-9})
    order = best_order(job, np.arange(8))
    before, after = takes(job, np.arange(8)), takes(job, order)
    # THEN the link has activations, or nothing
    assert before - after > 0.9
    place = {int(rank): at for at, rank in enumerate(order)}
    assert job.stage[place[1]] != job.stage[place[2]] or (place[1] + 1) % 4 != place[2] % 4


def test_nobody_moves_where_nothing_is_slow_or_all_are() -> None:
    for job in (cluster(2, 4), cluster(2, 2, slow=dict.fromkeys(range(4), 2.0)), cluster(1, 4, slow={2: 2.0})):
        assert best_order(job, np.arange(len(job.factor))).tolist() == list(range(len(job.factor)))


def test_tensor_parallel_ranks_move_together() -> None:
    job = cluster(2, 2, tensor=4, slow={0: 2.0, 9: 2.0}, node_ranks=4)
    order = best_order(job, np.arange(16)).reshape(4, 4)
    assert (order % 4 == np.arange(4)).all()
    assert (np.diff(order, axis=1) == 1).all()


@pytest.mark.parametrize("seed", range(30))
def test_steps_are_within_a_twentieth_of_all_orders(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    stages = int(rng.choice([2, 4]))
    ranks = rng.choice(8, 4, replace=False).tolist()
    slow = {rank: float(rng.uniform(1.2, 3.0)) for rank in ranks[: rng.integers(0, 4)]}
    links = {(ranks[2], ranks[3]): float(rng.uniform(1e-10, 1e-9))} if rng.integers(2) else {}
    job = cluster(stages, 8 // stages, slow=slow, links=links)
    best = iterations_s(job, np.array(list(permutations(range(8))))).min()
    assert takes(job, best_order(job, np.arange(8))) <= 1.05 * best
    monkeypatch.setattr(topology, "ALL_ORDERS", 8)
    assert takes(job, best_order(job, np.arange(8))) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(5))
def test_large_job_is_within_a_twentieth_of_the_best(seed: int) -> None:
    # GIVEN sixteen stages of sixteen replicas with slow ranks in one replica, and slow links of gradients
    rng = np.random.default_rng(seed)
    row = rng.choice(16, 4, replace=False)
    slow = {int(stage * 16 + 3): 2.0 for stage in row}
    links = {(int(place), int(place) // 16 * 16 + (int(place) + 1) % 16): 1e-9 for place in rng.choice(256, 3)}
    job = cluster(16, 16, slow=slow, links=links)
    order = best_order(job, np.arange(256))
    # THEN it takes about what it would with one slow rank in a replica, and no gradients over a slow link
    least = takes(cluster(16, 16, slow={0: 2.0}), np.arange(256))
    assert takes(job, order) <= 1.05 * least
