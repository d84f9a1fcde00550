"""Which runs a score has, and which of them methods of others hear."""

from __future__ import annotations

from collections import Counter

import pytest

from whichrank.bench.methods.campaign import plan
from whichrank.lab.scenarios import CLAIMED, SCENARIOS


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_one_run_of_each_scenario_is_heard_and_all_seeds_have_their_part(seeds: int) -> None:
    runs = plan(SCENARIOS, seeds)

    assert len({run.key for run in runs}) == len(runs) == seeds * len(SCENARIOS)
    assert Counter(run.scenario for run in runs if run.is_heard) == dict.fromkeys(SCENARIOS, 1)
    shares = Counter(run.seed for run in runs if run.is_heard)
    assert max(shares.values()) - min(shares.values()) <= 1
    assert len(shares) == seeds


def test_what_others_claim_is_heard_in_every_run() -> None:
    assert all(run.is_heard for run in plan(CLAIMED, 3))
