"""The catalogue, and which faults each command can do."""

from __future__ import annotations

from whichrank.testbed.bench.setup import demo_faults, lab_faults
from whichrank.testbed.lab.programs import PROGRAMS
from whichrank.testbed.lab.scenarios import CLAIMED, QUICK, SCENARIOS, by_class, chosen, known_as, workloads_of


def test_each_scenario_is_a_fault_of_the_lab_in_workloads_of_the_lab() -> None:
    for scenario in (*SCENARIOS, *CLAIMED):
        assert scenario.fault in lab_faults(), scenario
        assert set(scenario.workloads) <= set(PROGRAMS), scenario


def test_a_fault_is_done_where_something_comes_of_it() -> None:
    assert workloads_of("absorbed") == ("3d",)
    assert workloads_of("stop") == tuple(name for name in PROGRAMS if name != "pipeline")
    assert workloads_of("skip-op") == ("3d",)
    assert workloads_of("a fault that no scenario has") == workloads_of("stop")
    # AND in the pipeline that sends more, wherever it is in the other one, and where links matter
    known = known_as(lab_faults())
    assert [name for name in ("stop", "skip-op", "slow-link", "wrong-root") if known[name].fits("pipeline")] == [
        "stop", "skip-op", "slow-link",
    ]  # fmt: skip


def test_each_command_has_the_faults_that_its_jobs_can_have() -> None:
    assert {"ahead", "link-jitter"}.isdisjoint(demo_faults())
    assert {"async-posted-irecv", "death-own-timeout-exit"}.isdisjoint(lab_faults())
    assert {"stop", "slow-link"} <= demo_faults().keys() & lab_faults().keys()


def test_one_can_be_run_by_each_name_that_is_listed() -> None:
    known = known_as(lab_faults())
    for _, names in by_class():
        assert set(names) <= known.keys()
    assert lab_faults().keys() <= known.keys()
    # THEN a name with a form fixes it, and one without has it drawn
    assert (known["slow-link 50mbit"].fault, known["slow-link 50mbit"].variant) == ("slow-link", "50mbit")
    assert (known["slow-link"].variant, known["slow-link"].workloads) == ("", workloads_of("slow-link"))
    assert known["slow-link 50mbit claims"].workloads == ("ddp", "fsdp")


def test_the_quick_subset_has_one_of_each_class_of_hang_a_slow_link_and_a_healthy_job() -> None:
    assert [s.fault_class for s in chosen([QUICK])] == ["H1", "H2", "H3", "S2", None]
