"""A validation: the job is paused, ranks of suspect groups are measured, and the job goes on.

Computation and memory of all these ranks at once; then the links of their groups, in passes that do not overlap, each
group after those that it shares ranks with. Source: Greyhound, section 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.act.passes import Pass, ring_passes
from whichrank.act.pause import Pause, Phase
from whichrank.model.codes import GateTest
from whichrank.model.commands import HoldGate, RankTest
from whichrank.model.job_now import Group
from whichrank.model.rows import RESULTS

REPEATS: Final = 3
"""Greyhound, section 6. Of ranks one by one, with the other tests in between: what disturbs one lasts for a moment."""
MOST_GROUPS: Final = 200
"""Communicators whose links are tested: ranks tell 255 tests of a pause apart."""
TYPES: Final = 3
"""Of numbers that are multiplied."""


@dataclass
class Measured:
    """What came of a validation. Times are seconds; NaN where nothing was measured.

    Attributes:
        ranks: Of the job, (R,).
        compute_s: A product of matrices, by rank, type of numbers and repeat, (R, 3, repeats).
        memory_s: A copy of memory, (R, repeats).
        links: Sender and receiver, global ranks; bytes; seconds of each repeat.
        problems: By rank, why it could not measure.
    """

    ranks: NDArray[np.int64]
    compute_s: NDArray[np.float64]
    memory_s: NDArray[np.float64]
    links: list[tuple[int, int, int, list[float]]] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Test:
    kind: GateTest
    turn: int = 0
    group: Group | None = None
    passes: tuple[Pass, ...] = ()


class Validation:
    """Of one job.

    Args:
        pause: Of all its ranks.
        suspects: Ranks that are measured.
        groups: Whose links are.
        sizes: Bytes of the messages.
    """

    def __init__(self, pause: Pause, suspects: Sequence[int], groups: Sequence[Group], sizes: Sequence[int]) -> None:
        self.pause = pause
        self._suspects, self._sizes = sorted(set(suspects)), tuple(sizes)
        alone = (GateTest.COMPUTE, GateTest.MEMORY)
        self._tests = [_Test(kind, turn) for turn in range(REPEATS) for kind in alone]
        for group in groups[:MOST_GROUPS]:
            self._tests.append(_Test(GateTest.LINKS, 0, group, tuple(ring_passes(len(group.members)))))
        self._number = 0  # of the test that is under way, from 1
        nothing = np.full((len(pause.ranks), TYPES, REPEATS), np.nan)
        self.measured = Measured(pause.ranks, nothing, nothing[:, 0].copy())

    @property
    def is_over(self) -> bool:
        """Whether nothing more is asked."""
        return self.pause.phase is Phase.OVER

    def feed(self, rows: np.ndarray[Any, Any], now_s: float) -> None:
        """Take what ranks say of their gates: rows of GATE_REPORTED."""
        self.pause.feed(rows, now_s)
        self.advance(now_s)

    def advance(self, now_s: float) -> None:
        """Time goes on: ask for the next test if this one is done, and open behind the last."""
        self.pause.advance(now_s)
        while self.pause.phase is Phase.CLOSED:
            if self._number == 0:
                self._number = 1
            test = self._tests[self._number - 1]
            rows = self.pause.rows
            asked = np.isin(self.pause.ranks, self._asked(test))
            if not (rows["gate"]["tested"][asked] == self._id(self._number)).all():
                return
            self._keep(test, rows[asked])
            if self._number == len(self._tests):
                self.pause.open("", now_s)
                return
            self._number += 1

    def order(self) -> HoldGate:
        """How gates should be now."""
        if self.pause.phase is not Phase.CLOSED or not self._number:
            return self.pause.order()
        return self.pause.order(self._told(self._tests[self._number - 1]))

    def _asked(self, test: _Test) -> list[int]:
        return self._suspects if test.group is None else list(test.group.members)

    def _id(self, number: int) -> int:
        """Ranks tell tests apart by it, also those of two pauses."""
        return (self.pause.number << 8 | number) & 0xFFFFFFFF

    def _told(self, test: _Test) -> list[RankTest]:
        number = self._id(self._number)
        if test.group is None:
            return [RankTest(rank, number, int(test.kind), 1) for rank in self._suspects]
        told = []
        for place, rank in enumerate(test.group.members):
            roles: list[tuple[int, bool]] = []
            for one in test.passes:
                sends = [receiver for sender, receiver in one if sender == place]
                takes = [sender for sender, receiver in one if receiver == place]
                roles.append((sends[0], True) if sends else (takes[0], False) if takes else (-1, False))
            told.append(RankTest(rank, number, int(test.kind), REPEATS, test.group.comm_id, self._sizes, tuple(roles)))
        return told

    def _keep(self, test: _Test, rows: np.ndarray[Any, Any]) -> None:
        at = np.searchsorted(self.pause.ranks, rows["rank"])
        for place, row in zip(at.tolist(), rows, strict=True):
            gate = row["gate"]
            if problem := bytes(gate["problem"]).decode(errors="replace"):
                self.measured.problems[int(row["rank"])] = problem
            times = gate["result_s"][: min(int(gate["results"]), RESULTS)].astype(np.float64)
            times = np.where(times > 0, times, np.nan)
            if test.kind is GateTest.COMPUTE and len(times) == TYPES:
                self.measured.compute_s[place, :, test.turn] = times
            elif test.kind is GateTest.MEMORY and len(times) == 1:
                self.measured.memory_s[place, test.turn] = times[0]
            elif test.group is not None:
                self._keep_links(test, int(row["rank"]), times)

    def _keep_links(self, test: _Test, rank: int, times: NDArray[np.float64]) -> None:
        group, sizes = test.group, self._sizes
        if group is None or not len(times) or len(times) % (len(test.passes) * len(sizes)):
            return
        here = group.members.index(rank)
        by_pass = times.reshape(len(test.passes), len(sizes), -1)
        for one, measured in zip(test.passes, by_pass, strict=True):
            for sender, receiver in one:
                if receiver == here:
                    self.measured.links += [
                        (group.members[sender], rank, size, seconds.tolist())
                        for size, seconds in zip(sizes, measured, strict=True)
                    ]
