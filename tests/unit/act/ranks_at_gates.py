"""Ranks as their gates show them: they make steps, stop where they are told, make tests, and go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whichrank.model.codes import MIB, GateTest, Opened
from whichrank.model.commands import HoldGate, RankTest
from whichrank.model.telemetry import GATE_REPORTED

TICK_S = 0.05


@dataclass
class Rank:
    """One rank; it makes a step of `each` operations in `iteration_s`."""

    rank: int
    steps: int = 10
    each: int = 4
    iteration_s: float = 0.1
    makes_steps: bool = True
    compute_s: float = 0.002
    link_s: float = 0.01
    test_s: float = 0.0
    testing: tuple[int, float] = (0, 0.0)
    is_dead: bool = False
    ignores: bool = False
    in_flight: int = 0
    is_stuck: bool = False
    tests: int = 0
    since_s: float = 0.0
    row: Any = field(default_factory=lambda: np.zeros(1, GATE_REPORTED)[0])

    def go_on(self, order: HoldGate | None, now_s: float) -> None:
        """Let TICK_S pass."""
        gate = self.row["gate"]
        if self.is_dead:
            return
        if order and order.is_over and gate["arrived"] == order.pause and gate["opened"] != order.pause:
            gate["opened"], gate["opened_by"], gate["opened_ns"] = order.pause, Opened.TOLD, int(now_s * 1e9)
        waits = order and gate["arrived"] == order.pause and gate["opened"] != order.pause
        if waits and order:
            for test in order.tests:
                if test.rank == self.rank and gate["tested"] != test.number:
                    if self.testing[0] != test.number:
                        self.testing = test.number, now_s
                    if now_s - self.testing[1] >= self.test_s:
                        self._make(test)
            return
        while now_s - self.since_s >= self.iteration_s:
            self.since_s += self.iteration_s
            self.steps += 1
            if order and not self.ignores and not order.is_over and self._is_told(order):
                gate["arrived"], gate["arrived_ns"] = order.pause, int(now_s * 1e9)
                gate["arrived_ordinal"] = self.steps * self.each
                break
        self.row["rank"], self.row["ordinal"] = self.rank, self.steps * self.each
        self.row["in_flight"] = self.in_flight
        gate["steps"] = self.steps if self.makes_steps else 0

    def _is_told(self, order: HoldGate) -> bool:
        if self.makes_steps:
            return 0 < order.at_step <= self.steps
        return 0 < dict(order.at_ordinals).get(self.rank, 0) <= self.steps * self.each

    def _make(self, test: RankTest) -> None:
        gate = self.row["gate"]
        if self.is_stuck:
            return
        self.tests += 1
        if test.kind == GateTest.COMPUTE:
            times = [self.compute_s] * 3 * test.repeats
        elif test.kind == GateTest.MEMORY:
            times = [0.02] * test.repeats
        else:
            paces = [0.0 if sends or peer < 0 else self.link_s * MIB / test.sizes[-1] for peer, sends in test.passes]
            times = paces + [
                0.0 if sends or peer < 0 else self.link_s * size / test.sizes[-1]
                for peer, sends in test.passes
                for size in test.sizes
                for _ in range(test.repeats)
            ]
        gate["result_s"][: len(times)] = times
        gate["results"], gate["tested"] = len(times), test.number


def rows_of(ranks: list[Rank]) -> np.ndarray:
    return np.array([rank.row for rank in ranks], GATE_REPORTED)
