"""The iteration time that was found, beside the true one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from whichrank.model.iterations import Window
from whichrank.surface.cli import main
from whichrank.testbed.bench.iteration_time import (
    WORKLOADS,
    Compared,
    iterations_table,
    spans_of,
    true_iterations_s,
)
from whichrank.testbed.lab.programs import PROGRAMS

MS = 1_000_000


def window_of(*end_ms: int, total_s: float = 0.1) -> Window:
    """Two ranks, whose iterations ended so."""
    n = len(end_ms)
    alike = np.zeros(2, np.int64)
    return Window(
        ranks=np.arange(2), iteration=np.arange(n), end_ns=np.tile(np.array(end_ms) * MS, (2, 1)),
        total_s=np.full((2, n), total_s), own_s=np.full((2, n), total_s), position=alike, in_pipeline=alike > 0,
        roots=alike.astype(np.uint64), lasted_s=n * total_s, ring=alike - 1,
    )  # fmt: skip


def test_a_span_is_divided_by_either_number() -> None:
    # GIVEN true iterations of 100 ms with a slow start, and three that were found from 430 to 730 ms
    began = {rank: np.array([0, 300, 400, 500, 600, 700, 800]) * MS for rank in range(2)}
    window = window_of(530, 630, 730)
    # THEN both say three for each rank
    spans = spans_of(began, window)
    assert (spans.found, spans.lasted_s, spans.true) == (6, pytest.approx(0.6), pytest.approx(6.0))
    # AND of true iterations those count that lie in it by most of their time
    assert true_iterations_s(began, window).tolist() == [0.1] * 6
    assert sorted(true_iterations_s(began, None).tolist()) == [0.1] * 10 + [0.3] * 2
    # WHEN two are taken for one THEN there are half as many
    assert (spans_of(began, window_of(530, 730, total_s=0.2)).found, spans.true) == (4, pytest.approx(6.0))


RIGHT = Compared("ddp", 4, True, "steps", 0.1, 0.1009, 0.009, -0.02, 400, 0.1)


def test_what_is_off_by_more_than_a_percent_stands_out() -> None:
    wrong = replace(RIGHT, ours_s=0.2, off=1.0, found_by="operations")
    missing = replace(RIGHT, ours_s=None, off=None, median_off=None, found_by="nothing")
    assert [one.is_right for one in (RIGHT, wrong, missing)] == [True, False, False]
    assert iterations_table([RIGHT, wrong, missing]).splitlines()[2:] == [
        "| ddp | 4 | steps | 100.00 | 100.90 | +0.90% | -2.00% | 400 | 100.00 |",
        "| ddp | 4 | operations | 100.00 | 200.00 | +100.00% (**too much**) | -2.00% | 400 | 100.00 |",
        "| ddp | 4 | nothing | 100.00 | - | - (**too much**) | - | 400 | 100.00 |",
    ]


def test_every_script_and_every_workload_of_the_lab_is_compared() -> None:
    from whichrank.testbed.demo import workloads

    scripts = {path.stem for path in Path(workloads.__path__[0]).glob("*.py")} - {"__init__"}
    assert scripts | {f"lab {name}" for name in PROGRAMS} <= set(WORKLOADS)


def test_an_unknown_workload_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "iterations", "--only", "ddq"]) == 2
    assert "there is no workload 'ddq'" in capfd.readouterr().err
