"""What ranks say of their shares of the work."""

from __future__ import annotations

import numpy as np
import pytest

from whichrank.act.offers import Offers, by_agent
from whichrank.model.commands import Share, ShareOut
from whichrank.model.telemetry import SHARES_REPORTED

RANKS = range(8)


def rows(version: int = 0, counts: tuple[int, ...] = (4, 4, 4, 4)) -> np.ndarray:
    """Eight ranks in four replicas that offer 16 microbatches and use this version."""
    said = np.zeros(8, SHARES_REPORTED)
    said["rank"], said["shares"]["replica"] = np.arange(8), np.arange(8) // 2
    for name, value in (("microbatches", 16), ("multiple", 1), ("replicas", 4), ("used", version), ("newest", version)):
        said["shares"][name] = value
    of_rank = np.array(counts)[said["shares"]["replica"]]
    told = said["shares"]["told"]
    told["count"][:, version % 2] = of_rank
    told["first"][:, version % 2] = (np.cumsum(counts) - counts)[said["shares"]["replica"]]
    return said


def offers(*reported: np.ndarray) -> Offers:
    found = Offers()
    for one in reported:
        found.feed(one)
    return found


def test_replicas_share_evenly_at_first() -> None:
    offer = offers(rows()).of(RANKS)
    assert offer is not None
    assert (offer.version, offer.counts.tolist(), offer.replicas) == (0, [4] * 4, 4)


def test_version_is_in_use_when_all_ranks_say_so() -> None:
    told = rows(1, (5, 5, 1, 5))
    part = offers(rows(), told[:5]).of(RANKS)
    assert part is not None
    assert (part.version, len(part.counts)) == (-1, 0)
    offer = offers(rows(), told[:5], told[5:]).of(RANKS)
    assert offer is not None
    assert (offer.version, offer.counts.tolist()) == (1, [5, 5, 1, 5])


def test_replica_takes_what_the_slowest_of_its_ranks_takes() -> None:
    offer = offers(rows(1, (5, 5, 1, 5))).of(RANKS)
    assert offer is not None
    own_s = np.array([1.0, 1.0, 1.0, 1.5, 0.4, 0.8, 1.0, 1.0])
    assert offer.took_s(np.stack((own_s, 2 * own_s), axis=1)).tolist() == [
        [1.0, 2.0],
        [1.5, 3.0],
        [0.8, 1.6],
        [1.0, 2.0],
    ]


def test_each_rank_is_told_the_share_of_its_replica() -> None:
    offer = offers(rows()).of(RANKS)
    assert offer is not None
    order = offer.order(1, np.array([5, 5, 1, 5]))
    assert [(one.rank, one.first, one.count) for one in order.shares] == [
        (0, 0, 5), (1, 0, 5), (2, 5, 5), (3, 5, 5), (4, 10, 1), (5, 10, 1), (6, 11, 5), (7, 11, 5),
    ]  # fmt: skip
    apart = by_agent(order, {rank: "ab"[rank // 4] for rank in RANKS})
    assert {agent: [one.rank for one in of_it.shares] for agent, of_it in apart.items()} == {
        "a": [0, 1, 2, 3], "b": [4, 5, 6, 7],
    }  # fmt: skip
    assert apart["b"] == ShareOut(1, tuple(Share(*row) for row in [(4, 10, 1), (5, 10, 1), (6, 11, 5), (7, 11, 5)]))


@pytest.mark.parametrize(
    ("field", "value"), [("microbatches", 20), ("multiple", 2), ("replicas", 3), ("replica", 9), ("microbatches", 0)]
)
def test_ranks_that_do_not_agree_offer_nothing(field: str, value: int) -> None:
    said = rows()
    said["shares"][field][3:5] = value
    assert offers(said).of(RANKS) is None


@pytest.mark.parametrize(("field", "value"), [("count", 6), ("first", 1)])
def test_shares_that_do_not_fit_together_are_not_believed(field: str, value: int) -> None:
    said = rows(1, (5, 5, 1, 5))
    said["shares"]["told"][field][4, 1] = value
    assert offers(said).of(RANKS) is None


def test_no_offer_without_one_of_the_ranks_or_of_a_replica() -> None:
    found = offers(rows())
    assert offers(rows()[:7]).of(RANKS) is None
    assert found.of(range(6)) is None
    assert found.of([0, 2, 4, 6]) is not None
    found.forget([3])
    assert found.of(RANKS) is None
    assert Offers().of([]) is None
