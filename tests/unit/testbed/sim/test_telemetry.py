"""A simulated batch has what a batch of a real agent has, column by column and field by field."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whichrank.model import telemetry
from whichrank.model.telemetry import Batch
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import one_f_one_b
from whichrank.testbed.sim.halts import Halt
from whichrank.testbed.sim.run import Run
from whichrank.testbed.sim.telemetry import Agents
from whichrank.wire.tape import Tape

HEALTHY = Path(__file__).parents[3] / "kept" / "tapes" / "demo-none-0.tape.xz"
"""A healthy job of eight ranks, as its agent reported it."""
COLUMNS: dict[str, np.dtype[Any]] = {
    "ranks": telemetry.RANK_ROW, "comms": telemetry.COMM_ROW, "pairs": telemetry.PAIR_ROW,
    "inflight": telemetry.INFLIGHT_REPORTED, "waits": telemetry.WAIT_REPORTED, "records": telemetry.RECORD_REPORTED,
    "rates": telemetry.RATE_ROW, "connections": telemetry.TCP_ROW,
}  # fmt: skip
NOT_SIMULATED = {
    "ranks.busy": "no simulated rank writes a checkpoint or has children",
    "ranks.closed_ns": "no simulated job ends in good order",
    "ranks.ended_ns": "the same; of ranks that die it is there",
    "connections.unread_bytes": "simulated ranks read at once",
    "connections.info.rwnd_limited_us": "the same",
    "connections.unsent_bytes": "simulated kernels acknowledge at once, but for those of lost nodes",
    "connections.info.unacked": "the same",
    "connections.info.total_retrans": "the same",
    "waits.row.inflight": "a slot of the ring, which no analyzer reads",
    "inflight.row.signature": "of sizes of uneven all-to-alls; simulated ones are even",
    "inflight.row.flags": "of futures, inferred ends and uneven sizes, which there are none of",
    "records.row.flags": "the same",
    "waits.row.tag": "simulated messages have tag 0",
    "waits.row.reduce_op": "simulated reductions are sums, which have number 0",
    "inflight.row.reduce_op": "the same",
    "records.row.reduce_op": "the same",
}
"""What a real agent fills and a simulated one does not, and why."""


def leaves(dtype: np.dtype[Any], before: str = "") -> Iterator[str]:
    for name in dtype.names or ():
        inner = dtype[name]
        yield from leaves(inner, f"{before}{name}.") if inner.names else [f"{before}{name}"]


def filled(batches: list[Batch]) -> set[str]:
    """Fields that are not zero in some row."""
    found = set()
    for column, dtype in COLUMNS.items():
        rows = np.concatenate([np.frombuffer(getattr(batch, column), dtype) for batch in batches])
        for path in leaves(dtype):
            values: Any = rows
            for name in path.split("."):
                values = values[name]
            if any(np.ascontiguousarray(values).tobytes()):
                found.add(f"{column}.{path}")
    return found


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    tape = tmp_path_factory.mktemp("tape") / "telemetry.tape"
    tape.write_bytes(lzma.decompress(HEALTHY.read_bytes()))
    return filled([entry.batch for entry in Tape(tape) if entry.batch is not None])


@pytest.fixture(scope="module")
def simulated() -> set[str]:
    """Of a job that goes on, and then stands in collectives and messages."""
    run = Run(Layout(tp=2, dp=4, pp=2), one_f_one_b(2, 4), layers=1)
    agents, batches = Agents(run), list[Batch]()
    halt = Halt("tp", 1, 3)
    halt.install(run)
    for _ in range(3):
        batches += agents.report([run.iterate()], 1010.0 + run.done)
    return filled(batches)


def test_each_field_that_an_agent_fills_is_simulated_or_known_not_to_be(real: set[str], simulated: set[str]) -> None:
    assert real - simulated - NOT_SIMULATED.keys() == set()


def test_list_of_what_is_not_simulated_is_up_to_date(real: set[str], simulated: set[str]) -> None:
    assert NOT_SIMULATED.keys() - real == set()
    assert NOT_SIMULATED.keys() & simulated == set()
