"""The gate of a ring, told from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ring_writer import RingWriter, core

from whichrank.errors import RingFormatError
from whichrank.model.codes import Flag
from whichrank.model.rows import GATE, PASSES
from whichrank.ring.gate import RingGate
from whichrank.ring.layout import RING


@pytest.fixture
def writer(tmp_path: Path) -> RingWriter:
    return RingWriter(tmp_path / "1.ring")


@pytest.fixture
def gate(writer: RingWriter) -> Iterator[RingGate]:
    gate = RingGate(writer.path)
    yield gate
    gate.let_go()


def passes(writer: RingWriter) -> None:
    core().wr_gate_pass.argtypes = (__import__("ctypes").c_void_p,)
    core().wr_gate_pass(writer.ring)


def test_gate_is_told_how_far_a_rank_may_come(writer: RingWriter, gate: RingGate) -> None:
    gate.shut(7, longest_s=2.5, at_step=3, at_ordinal=1 << 40)
    row = gate.read()
    assert gate.is_closed()
    assert {name: int(row[name]) for name in ("pause", "at_step", "at_ordinal", "longest_ms", "test")} == {
        "pause": 7, "at_step": 3, "at_ordinal": 1 << 40, "longest_ms": 2500, "test": 0,
    }  # fmt: skip
    gate.open()
    assert not gate.is_closed()


def test_rank_that_has_come_so_far_waits_until_it_is_not_renewed(writer: RingWriter, gate: RingGate) -> None:
    writer.op(writer.comm("world", [0]))
    assert gate.ordinal() == 1
    gate.shut(1, longest_s=30, at_ordinal=2)
    passes(writer)  # it may come further
    assert int(gate.read()["arrived"]) == 0
    gate.shut(2, longest_s=30, at_ordinal=1)
    passes(writer)
    row = gate.read()
    assert (int(row["arrived"]), int(row["opened"]), int(row["opened_by"])) == (2, 2, 2)


def test_operations_in_flight_are_counted_if_their_end_is_seen(writer: RingWriter, gate: RingGate) -> None:
    slot = writer.comm("world", [0, 1])
    writer.begin(slot, flags=int(Flag.END_INFERRED))
    assert gate.in_flight() == 0
    op = writer.begin(slot)
    assert gate.in_flight() == 1
    writer.end(op)
    assert gate.in_flight() == 0


def test_test_is_asked_for_within_its_bounds(writer: RingWriter, gate: RingGate) -> None:
    test = np.zeros((), GATE)
    test["test_kind"], test["test_repeats"], test["test_passes"], test["test_sizes"] = 3, 3, 1000, 1000
    test["test_pass"]["peer"] = np.arange(PASSES)
    test["test_bytes"][0] = 1 << 24
    gate.shut(1, longest_s=1, at_step=1)
    gate.ask(4, test)
    row = gate.read()
    assert (int(row["test"]), int(row["test_kind"]), int(row["test_passes"]), int(row["test_sizes"])) == (4, 3, 8, 4)
    assert row["test_pass"]["peer"].tolist() == list(range(PASSES))
    assert int(row["test_bytes"][0]) == 1 << 24
    # AND nothing else of the ring was touched
    assert int(gate.read()["steps"]) == 0
    assert gate.ordinal() == 0


@pytest.mark.parametrize("content", [b"", b"x" * RING.itemsize, b"\0" * 100])
def test_what_is_no_ring_is_not_written_to(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "2.ring"
    path.write_bytes(content)
    with pytest.raises(RingFormatError, match="no version"):
        RingGate(path)
    assert path.read_bytes() == content


def test_ring_that_was_cut_short_is_an_error(writer: RingWriter, gate: RingGate) -> None:
    os.truncate(writer.path, 4096)
    with pytest.raises(RingFormatError, match="cut short"):
        gate.read()
