"""What an agent does with the gates of its ranks, and when it lets go of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ring_writer import RingWriter

from whichrank.agent.gates import SAID_S, TOLD_S, Gates
from whichrank.model.codes import GateTest
from whichrank.model.commands import HoldGate, RankTest
from whichrank.model.telemetry import GATE_REPORTED
from whichrank.ring.gate import RingGate
from whichrank.ring.reader import RingReader


@pytest.fixture
def watches(tmp_path: Path) -> list[Any]:
    """Two ranks, each with a communicator in its ring."""
    found = []
    for rank in range(2):
        writer = RingWriter(tmp_path / f"{rank + 1}.ring", rank=rank, world=2)
        writer.op(writer.comm("world", [0, 1], group_rank=rank))
        with RingReader(writer.path) as reader:
            snapshot = reader.snapshot()
        found.append(SimpleNamespace(path=writer.path, rank=rank, ended_ns=0, snapshot=snapshot, writer=writer))
    return found


def gate_of(watch: Any) -> RingGate:
    return RingGate(watch.path)


def rows(data: bytes) -> np.ndarray:
    return np.frombuffer(data, GATE_REPORTED)


def test_nothing_is_held_at_first() -> None:
    gates = Gates()
    assert not gates.are_held
    assert gates.tick(0.0) == b""


def test_it_is_said_how_far_ranks_are_before_they_are_kept(watches: list[Any]) -> None:
    gates = Gates()
    gates.obey(HoldGate(7, 1), watches, 0.0)
    said = rows(gates.tick(0.1))
    assert said["rank"].tolist() == [0, 1]
    assert said["ordinal"].tolist() == [1, 1]
    assert said["in_flight"].tolist() == [0, 0]
    assert not gate_of(watches[0]).is_closed()


def test_gates_are_closed_renewed_and_opened_as_told(watches: list[Any]) -> None:
    gates = Gates()
    gates.obey(HoldGate(7, 1, longest_s=5.0, at_step=12), watches, 0.0)
    before = int(gate_of(watches[1]).read()["renewals"])
    gates.tick(0.1)
    row = gate_of(watches[1]).read()
    assert gate_of(watches[1]).is_closed()
    assert (int(row["pause"]), int(row["at_step"]), int(row["longest_ms"])) == (7, 12, 5000)
    assert int(row["renewals"]) != before
    # WHEN it is told that the pause is over THEN gates are open, and ranks are still reported for a while
    gates.obey(HoldGate(7, 2, is_over=True), watches, 0.2)
    assert not gate_of(watches[1]).is_closed()
    assert len(rows(gates.tick(0.15 + SAID_S))) == 2
    gates.tick(0.3 + 2 * TOLD_S)
    assert not gates.are_held


def test_what_has_not_changed_is_said_seldom(watches: list[Any]) -> None:
    gates = Gates()
    gates.obey(HoldGate(7, 1, longest_s=5.0, at_step=12), watches, 0.0)
    assert len(rows(gates.tick(0.1))) == 2
    assert gates.tick(0.15) == b""
    watches[1].writer.op(0)
    assert rows(gates.tick(0.2))["ordinal"].tolist() == [1, 2]
    assert gates.tick(0.25) == b""
    assert len(rows(gates.tick(0.2 + SAID_S))) == 2


def test_ranks_without_steps_are_kept_by_operations(watches: list[Any]) -> None:
    gates = Gates()
    gates.obey(HoldGate(7, 1, longest_s=5.0, at_ordinals=((0, 40), (1, 44))), watches, 0.0)
    assert [int(gate_of(watch).read()["at_ordinal"]) for watch in watches] == [40, 44]


def test_gates_open_if_nothing_more_is_said(watches: list[Any]) -> None:
    gates = Gates()
    gates.obey(HoldGate(7, 1, longest_s=5.0, at_step=12), watches, 0.0)
    gates.tick(TOLD_S + 0.01)
    assert not gate_of(watches[0]).is_closed()
    assert not gates.are_held


def test_another_pause_replaces_the_one_before(watches: list[Any]) -> None:
    gates = Gates()
    gates.obey(HoldGate(7, 1, longest_s=5.0, at_step=12), watches, 0.0)
    gates.obey(HoldGate(8, 1, longest_s=5.0, at_step=20), watches, 0.1)
    row = gate_of(watches[0]).read()
    assert (int(row["pause"]), int(row["at_step"])) == (8, 20)


def test_each_rank_is_asked_for_its_own_test_once(watches: list[Any]) -> None:
    gates = Gates()
    comm_id = int(watches[1].snapshot.comms["comm_id"][0])
    test = RankTest(1, 5, int(GateTest.LINKS), 3, comm_id, (1 << 20,), ((0, True), (-1, False)))
    gates.obey(HoldGate(7, 1, longest_s=5.0, at_step=12, tests=(test,)), watches, 0.0)
    asked, other = gate_of(watches[1]).read(), gate_of(watches[0]).read()
    assert (int(asked["test"]), int(asked["test_slot"]), int(asked["test_passes"])) == (5, 0, 2)
    assert asked["test_pass"][:2].tolist() == [(0, 1), (-1, 0)]
    assert int(other["test"]) == 0


def test_rank_whose_ring_cannot_be_opened_is_left_out(watches: list[Any]) -> None:
    watches[0].path.unlink()
    gates = Gates()
    gates.obey(HoldGate(7, 1, longest_s=5.0, at_step=12), watches, 0.0)
    assert rows(gates.tick(0.1))["rank"].tolist() == [1]
