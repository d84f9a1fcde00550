"""The slow faults: complete, with what they need, in the words of the design."""

from __future__ import annotations

import pytest

from whichrank.testbed.demo.drag import Load
from whichrank.testbed.demo.layout import Layout
from whichrank.testbed.demo.recipes import RECIPES
from whichrank.testbed.demo.slow import SLOW, added_s_at_most, load_of, settings_of

ASKED = {
    "slow-compute", "slow-layers", "slow-start", "flap", "slow-data", "gc-storm", "two-slow", "slow-every-rank",
    "long-last-stage", "absorbed", "cpu-limit", "cpu-contention", "more-tokens", "wander", "longer-sequences",
    "slow-link", "slow-link-and-compute", "slow-compute-nodes", "slow-inbound", "lossy-link",
    "slow-forward", "slow-backward",
}  # fmt: skip


def test_the_catalogue_is_whole() -> None:
    assert set(SLOW) == ASKED
    for fault in SLOW.values():
        assert fault.where in RECIPES
        assert set(fault.causes) <= {"compute_slow", "mixed_slow", "communication_slow", "imbalance", "none"}
        assert all(variant.effect in ("slow", "slow-all", "slow-link", "uneven", "none") for variant in fault.variants)
        assert all(Layout.parse(name).world_size == 8 for name in fault.layouts)


@pytest.mark.parametrize("name", sorted(name for name in ASKED if SLOW[name].where not in ("cpu", "link")))
def test_every_magnitude_is_a_load(name: str) -> None:
    for variant in SLOW[name].variants:
        load = Load(**load_of(name, variant.name))
        assert load != Load()


def test_a_slow_start_is_in_the_settings_of_its_victim_alone() -> None:
    layout = Layout.parse("tp2-pp2-dp2")
    reported = [settings_of("slow-start", "x1.5", rank, 3, layout) for rank in range(8)]
    assert [bool(settings) for settings in reported] == [rank == 3 for rank in range(8)]
    assert Load(**reported[3]["load"]).factor == 1.5


def test_ranks_wander_one_at_a_time() -> None:
    layout = Layout.parse("dp8")
    loads = [Load(**settings_of("wander", "x2", rank, 3, layout)["load"]) for rank in range(8)]
    slow = [[rank for rank, load in enumerate(loads) if (i - load.after) % (load.on + load.off) < load.on]
            for i in range(48)]  # fmt: skip
    assert slow == [[i // 3 % 8] for i in range(48)]


@pytest.mark.parametrize("layout", SLOW["more-tokens"].layouts)
def test_more_rows_are_those_of_a_whole_replica(layout: str) -> None:
    shape = Layout.parse(layout)
    reported = [settings_of("more-tokens", "x2", rank, 3, shape) for rank in range(8)]
    assert [bool(settings) for settings in reported] == [
        shape.index(rank, "dp") == shape.index(3, "dp") for rank in range(8)
    ]
    assert Load(**reported[3]["load"]).rows == 2.0


@pytest.mark.parametrize("name", ["long-last-stage", "absorbed"])
@pytest.mark.parametrize("layout", SLOW["absorbed"].layouts)
def test_a_long_stage_is_the_last_one(name: str, layout: str) -> None:
    shape = Layout.parse(layout)
    reported = [settings_of(name, "x1.5", rank, 0, shape) for rank in range(8)]
    assert [bool(settings) for settings in reported] == [shape.index(rank, "pp") == shape.pp - 1 for rank in range(8)]


def test_what_is_added_to_an_iteration_is_known_of_devices_and_of_data() -> None:
    assert added_s_at_most("slow-compute", "x1.5", 0.2) == pytest.approx(0.1)
    assert added_s_at_most("slow-data", "x1.2", 0.2) == pytest.approx(0.05)
    assert added_s_at_most("slow-compute", "x1.5", 0.0) is None  # how long the device takes is not known
    assert added_s_at_most("gc-storm", "40k", 0.2) is None
    assert added_s_at_most("cpu-limit", "0.02", 0.2) is None
