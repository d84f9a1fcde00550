"""The catalogue and the matrices: complete, consistent, in the words of the design."""

from __future__ import annotations

import importlib.util

import pytest

from whichrank.testbed.demo.fault import Fault
from whichrank.testbed.demo.faults import CATALOGUE
from whichrank.testbed.demo.layout import Layout
from whichrank.testbed.demo.matrix import ASYNC, DEATH, MATRIX
from whichrank.testbed.demo.plan import fits_layout
from whichrank.testbed.demo.recipes import RECIPES

CAUSES = {"not_entered", "inconsistent", "deadlock", "process_exit", "device", "suspended", "none"}
REASONS = {
    "", "stopped", "signal", "out of memory", "exception", "in user code", "GIL held", "writing a checkpoint",
}  # fmt: skip
FAULTS = [
    "stop",
    "stop-in-op",
    "kill",
    "exit",
    "raise",
    "oom-kill",
    "sleep",
    "sleep-gil",
    "spin",
    "skip-op",
    "repeat-op",
    "wrong-shape",
    "wrong-dtype",
    "wrong-op",
    "wrong-reduce-op",
    "wrong-root",
    "wrong-order",
    "never-init",
    "stop-and-continue",
]
HEALTHY = [
    "none",
    "jitter",
    "late-checkpoint",
    "rank0-eval",
    "gc",
    "first-compile",
    "suspend-all",
    "early-exit",
    "posted-irecv",
]
ALL = {**CATALOGUE, **MATRIX}


def test_the_catalogue_has_every_fault_of_the_issue() -> None:
    # GIVEN the faults that the issue names
    # THEN each is in the catalogue, and marked healthy where no alert is right
    assert {name for name, fault in CATALOGUE.items() if not fault.healthy} == set(FAULTS)
    assert {name for name, fault in CATALOGUE.items() if fault.healthy} == set(HEALTHY)


def test_the_matrices_have_every_cell() -> None:
    paths = ("raise", "kill", "exit", "larger", "smaller", "own-timeout")
    assert set(DEATH) == {f"death-{path}-{peers}" for path in paths for peers in ("reraise", "exit")}
    assert len(ASYNC) == 6
    assert all(fault.settings.get("on_error") == "exit" for name, fault in DEATH.items() if name.endswith("-exit"))


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_an_entry_uses_the_words_of_the_design(fault: Fault) -> None:
    assert fault.name in ALL
    assert fault.where in RECIPES
    assert fault.variants
    assert importlib.util.find_spec(fault.module) is not None
    for variant in fault.variants:
        assert set(variant.causes or fault.causes) <= CAUSES
    assert set(fault.reasons) <= REASONS
    if fault.healthy:
        assert not fault.hard
        assert "none" in fault.causes
    else:
        assert "none" not in fault.causes


@pytest.mark.parametrize("fault", CATALOGUE.values(), ids=CATALOGUE)
def test_an_entry_says_what_was_observed(fault: Fault) -> None:
    assert all(variant.observed for variant in fault.variants)


@pytest.mark.parametrize("layout", ["tp2-pp2-dp2", "tp4-dp2", "pp2-dp4", "tp2-pp4"])
def test_every_fault_fits_every_mixed_layout(layout: str) -> None:
    for fault in ALL.values():
        assert any(fits_layout(variant, Layout.parse(layout)) for variant in fault.variants), fault.name
