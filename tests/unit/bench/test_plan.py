"""Which runs a score has, and which of them methods of others hear."""

from __future__ import annotations

from collections import Counter

import pytest

from whichrank.bench.methods.campaign import plan
from whichrank.lab.scenarios import CLAIMED, SCENARIOS


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_each_scenario_is_heard_from_some_seed_on_and_all_seeds_have_their_part(seeds: int) -> None:
    runs = plan(SCENARIOS, seeds)

    assert len({run.key for run in runs}) == len(runs) == seeds * len(SCENARIOS)
    first = {run.scenario: run.seed for run in reversed(runs) if run.may_be_heard}
    assert set(first) == set(SCENARIOS)
    assert max(Counter(first.values()).values()) - min(Counter(first.values()).values()) <= 1
    assert set(first.values()) == set(range(seeds))


def test_what_others_claim_is_heard_in_every_run() -> None:
    assert all(run.may_be_heard for run in plan(CLAIMED, 3))
