"""Computed jobs with a slow rank, and what they would be without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from simulated import Compute, Program, run

from whichrank.locate.critical_path import Course, Repaired
from whichrank.locate.events import course_of
from whichrank.model.iterations import PASS, Ops

ITERATIONS = 6


def course_and_passes(
    programs: list[Program],
    slower: Callable[[int, int, Compute], float],
    transfer: Callable[[int, int], float] = lambda *_: 1.0,
) -> tuple[Course, np.ndarray]:
    """The course of a job and its backward passes."""
    reported = run(programs, ITERATIONS + 2, slower, transfer)
    ops, steps = reported.arrays()
    steps = steps[(steps["counter"] >= 1) & (steps["counter"] <= ITERATIONS + 1)]
    size = np.array([len(np.unique(ops["rank"][ops["comm"] == comm])) for comm in range(int(ops["comm"].max()) + 1)])
    course = course_of([Ops.of_rows(ops)], steps, size)
    assert course is not None
    passes = np.array(reported.passes, np.int64).view([(name, "i8") for name in ("rank", "begin_ns", "end_ns")])
    passes = passes.reshape(-1).astype(PASS)
    return course, passes[np.lexsort((passes["begin_ns"], passes["rank"]))]


def repaired(
    programs: list[Program], slower: Callable[[int, int, Compute], float], slow: int, factor: float
) -> Repaired:
    """A job with a rank that takes so many times as long, and what it would be without."""
    course, passes = course_and_passes(programs, slower)
    usual_s = np.where(course.rank == slow, course.own_s / factor, course.own_s)
    in_pipeline = np.full(len(programs), bool((course.ops["kind"] >= 32).any()))
    return Repaired(course, replace(course, own_s=usual_s), 0, passes, in_pipeline, np.zeros(len(programs), np.int64))
