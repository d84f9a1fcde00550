"""Holds the gates of this node's ranks as the analyzer tells: closes, renews, asks for tests, reports, opens.

Whoever holds a gate must go on saying so. If the analyzer says nothing for a moment, the gates are opened; if this
agent dies, they open by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from whichrank.agent.rank import RankWatch
from whichrank.errors import RingFormatError
from whichrank.model.commands import HoldGate, RankTest
from whichrank.model.rows import GATE, PASSES, SIZES
from whichrank.model.telemetry import GATE_REPORTED
from whichrank.ring.gate import RingGate

EVERY_S: Final = 0.05
"""Between two looks at gates that are held."""
SAID_S: Final = 0.25
"""So often it is said how far ranks are while nothing changes."""
TOLD_S: Final = 0.4
"""The analyzer must say again in so long what it has said: with the rank's own patience that is a second."""


class Gates:
    """None is held at first."""

    def __init__(self) -> None:
        self._order: HoldGate | None = None
        self._told_s = 0.0
        self._gates: dict[int, RingGate] = {}  # by rank
        self._shut: set[int] = set()
        self._asked: dict[int, int] = {}  # number of the test that a rank was asked for
        self._slots: dict[int, dict[int, int]] = {}  # by rank and communicator
        self._count = 0
        self._said, self._said_s = b"", 0.0

    @property
    def are_held(self) -> bool:
        """Whether there is something to renew and to report."""
        return self._order is not None

    def obey(self, order: HoldGate, watches: Sequence[RankWatch], now_s: float) -> None:
        """Hold the gates so from now on."""
        if self._order is None or self._order.pause != order.pause:
            self.open()
            if order.is_over:
                return
        self._order, self._told_s = order, now_s
        if order.is_over:
            self._open_all()
            return
        self._find(watches)
        for rank, gate in self._gates.items():
            with contextlib.suppress(OSError):
                self._tell(rank, gate, order)

    def tick(self, now_s: float) -> bytes:
        """Renew what is held; rows of GATE_REPORTED of these ranks, if that is news."""
        if self._order is None:
            return b""
        rows = self._read()
        rows["gate"]["renewals"] = 0  # by ourselves
        if now_s - self._told_s > TOLD_S:
            self.open()
        elif not self._order.is_over:
            self._count += 1
            for rank in self._shut:
                with contextlib.suppress(OSError):
                    self._gates[rank].renew(self._count)
        said = rows.tobytes()
        if said == self._said and now_s - self._said_s < SAID_S:
            return b""
        self._said, self._said_s = said, now_s
        return said

    def open(self) -> None:
        """Let all ranks go on, and hold nothing any more."""
        self._open_all()
        for gate in self._gates.values():
            gate.let_go()
        self._order, self._gates, self._shut, self._asked, self._slots = None, {}, set(), {}, {}

    def _open_all(self) -> None:
        for rank in self._shut:
            with contextlib.suppress(OSError):
                self._gates[rank].open()
        self._shut = set()

    def _find(self, watches: Sequence[RankWatch]) -> None:
        for watch in watches:
            if watch.ended_ns or watch.rank < 0 or watch.rank in self._gates:
                continue
            with contextlib.suppress(OSError, RingFormatError):
                self._gates[watch.rank] = RingGate(watch.path)
                comms, slots = watch.snapshot.comms, watch.snapshot.comm_slots
                self._slots[watch.rank] = dict(zip(comms["comm_id"].tolist(), slots.tolist(), strict=True))

    def _tell(self, rank: int, gate: RingGate, order: HoldGate) -> None:
        at_ordinal = dict(order.at_ordinals).get(rank, 0)
        if rank not in self._shut and (order.at_step or at_ordinal):
            gate.shut(order.pause, longest_s=order.longest_s, at_step=order.at_step, at_ordinal=at_ordinal)
            self._shut.add(rank)
        for test in order.tests:
            if test.rank == rank and self._asked.get(rank) != test.number:
                self._asked[rank] = test.number
                gate.ask(test.number, _row_of(test, self._slots.get(rank, {}).get(test.comm_id, 0xFFFF)))

    def _read(self) -> np.ndarray:
        rows = np.zeros(len(self._gates), GATE_REPORTED)
        read = 0
        for rank, gate in self._gates.items():
            with contextlib.suppress(OSError, RingFormatError):
                rows[read]["gate"] = gate.read()
                rows[read]["rank"], rows[read]["ordinal"] = rank, gate.ordinal()
                rows[read]["in_flight"] = gate.in_flight()  # after the gate: what was begun before it arrived
                read += 1
        return rows[:read]


def _row_of(test: RankTest, slot: int) -> np.ndarray:
    """The fields of GATE that describe a test."""
    row = np.zeros((), GATE)
    row["test_kind"], row["test_slot"], row["test_repeats"] = test.kind, slot, test.repeats
    row["test_passes"], row["test_sizes"] = len(test.passes[:PASSES]), len(test.sizes[:SIZES])
    row["test_bytes"][: len(test.sizes)] = test.sizes[:SIZES]
    row["test_pass"]["peer"] = -1
    for at, (peer, sends) in enumerate(test.passes[:PASSES]):
        row["test_pass"][at] = peer, sends
    return row
