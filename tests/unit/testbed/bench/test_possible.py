"""A fault that would change nothing on a network is no fault: its form is not drawn, or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.errors import UsageError
from whichrank.testbed.bench import setup
from whichrank.testbed.bench.possible import possible
from whichrank.testbed.bench.setup import Setup, has_means, lab_faults, require_means
from whichrank.testbed.bench.trial import Trial
from whichrank.testbed.lab.namespaces import INSIDE
from whichrank.testbed.lab.topology import Topology

FAULTS = lab_faults()


def forms(fault: str, rate: str) -> list[str]:
    return [form.name for form in possible(FAULTS[fault], Topology(), rate).variants]


@pytest.mark.parametrize(
    ("rate", "drawn"),
    [
        ("200mbit", ["100mbit", "50mbit"]),
        ("100000kbit", ["50mbit"]),
        ("1gbit", ["200mbit", "100mbit", "50mbit"]),
        ("", ["200mbit", "100mbit", "50mbit"]),
    ],
)
def test_a_cable_is_never_limited_to_a_rate_that_it_has(rate: str, drawn: list[str]) -> None:
    assert forms("slow-link", rate) == drawn


def test_a_trial_draws_what_slows_its_cables(tmp_path: Path) -> None:
    trial = Trial(Setup("slow-link", workload="ddp", topology=Topology(), rate="200mbit"), tmp_path)
    assert [form.name for form in trial.fault.variants] == ["100mbit", "50mbit"]


@pytest.mark.parametrize(("variant", "said"), [("", "50mbit"), ("100mbit", "100mbit")])
def test_a_rate_that_no_cable_would_feel_is_refused(variant: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"limits a cable to {said}, and all cables have 50mbit") as caught:
        possible(FAULTS["slow-link"], Topology(), "50mbit", variant)
    assert caught.value.mend == "--rate 200mbit"


@pytest.mark.parametrize("fault", ["dead-spine", "partition", "congested", "congested-spine", "reroute"])
def test_where_no_path_goes_over_a_spine_none_is_broken(fault: str) -> None:
    with pytest.raises(UsageError, match=f"the fault '{fault}' needs 2 leaves, and there is 1") as caught:
        possible(FAULTS[fault], Topology(leaves=1), "200mbit", command="whichrank lab up")
    assert caught.value.mend == "whichrank lab up --leaves 2"


def test_where_no_route_goes_round_it_no_cable_is_taken_out() -> None:
    with pytest.raises(UsageError, match="needs 2 spines, and there is 1"):
        possible(FAULTS["reroute"], Topology(spines=1), "200mbit")
    assert possible(FAULTS["dead-spine"], Topology(spines=1), "200mbit")


def test_where_no_control_group_can_be_made_it_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(cores: float, prefix: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(setup, "cpu_cgroup", refuse)
    with pytest.raises(UsageError, match="the fault 'cpu-limit' needs a control group, and none can be made here"):
        require_means(FAULTS["cpu-limit"])
    monkeypatch.setenv(INSIDE, "1")
    with pytest.raises(UsageError) as caught:
        Trial(Setup("cpu-limit", workload="ddp", topology=Topology(), rate="200mbit"), tmp_path)
    assert caught.value.mend == "run it as root"
    assert not has_means(FAULTS["cpu-limit"])
    assert has_means(FAULTS["oom-kill"])
