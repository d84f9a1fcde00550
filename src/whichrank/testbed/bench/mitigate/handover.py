"""Handing states from rank to rank, against writing them to disk and starting anew: figure 19 of Greyhound.

A real job of two stages and two replicas. All ranks change places, or write a checkpoint that another job goes on from.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from whichrank.errors import RingFormatError, SensorError
from whichrank.ring.places import RingPlaces
from whichrank.testbed.bench.mitigate.rings import rings_of
from whichrank.testbed.bench.mitigate.runs import Run, Shape

GRADIENT_MIB: Final = (16.0, 64.0, 192.0)
"""Of a rank; its state is twice as much, with the momentum."""
REPEATS: Final = 3
STATE_IS_WHOLE: Final = 5
"""Iterations, after which optimizers have their state."""
OTHER_PLACES: Final = (1, 0, 3, 2)
PATIENCE_S: Final = 120.0


class HandoverResult(msgspec.Struct, frozen=True, kw_only=True):
    """Of one size; seconds that training stood still, one for each repeat."""

    state_bytes: int
    """Of a rank."""
    handed_over_s: tuple[float, ...]
    """All ranks have changed places, groups built anew, states checked."""
    written_s: tuple[float, ...]
    """All states are on disk; until that was seen from outside."""
    loaded_s: float
    """In the job that goes on: the longest of its ranks."""
    restarted_s: float
    """From the end of one job to the first iteration of the next one."""


def try_handover(gradient_mib: float) -> HandoverResult:
    """Measure one size.

    Raises:
        SensorError: The job fails, or ranks do not do what they are told.
    """
    shape = Shape(stages=2, replicas=2, each=2, microbatch_ms=2.0, gradient_mib=gradient_mib)
    with tempfile.TemporaryDirectory(prefix="whichrank-handover-") as name:
        folder, checkpoints = Path(name), Path(name) / "checkpoints"
        first, second = folder / "first", folder / "second"
        first.mkdir()
        second.mkdir()
        with Run(shape, first, mode="advise", checkpoints=checkpoints) as run, contextlib.ExitStack() as stack:
            run.until(lambda: len(run.iterations(0)) > STATE_IS_WHOLE, "it trained")
            told = [stack.enter_context(contextlib.closing(RingPlaces(path))) for path in rings_of(first / "run")]
            told.sort(key=lambda one: int(one.read()["place"]))
            handed_over_s, written_s = [], []
            for version in range(1, REPEATS + 1):
                _tell(run, told, version, OTHER_PLACES if version % 2 else range(shape.ranks))
                handed_over_s.append(max(int(one.read()["took_ms"]) for one in told) / 1000.0)
            at = [int(one.read()["place"]) for one in told]
            for version in range(REPEATS + 1, 2 * REPEATS + 1):
                written_s.append(_tell(run, told, version, at, saves=True))
            size = max(int(one.read()["bytes"]) for one in told)
            run.finish()
        ended_s = time.time()
        with Run(shape, second, mode="advise", checkpoints=checkpoints) as run:
            run.until(lambda: len(run.iterations(0)) > 0, "it trained")
            restarted_s = run.iterations(0)[0]["at"] - ended_s
            loaded_s = max(float((second / f"resumed.{rank}").read_text()) for rank in range(shape.ranks))
            run.finish()
        return HandoverResult(
            state_bytes=size, handed_over_s=tuple(handed_over_s), written_s=tuple(written_s), loaded_s=loaded_s,
            restarted_s=restarted_s,
        )  # fmt: skip


def _tell(run: Run, told: Sequence[RingPlaces], version: int, places: Sequence[int], *, saves: bool = False) -> float:
    """Have all ranks do this; seconds until all have.

    Raises:
        SensorError: They have not, or have given it up.
    """
    began_s = time.monotonic()
    for ring, place in zip(told, places, strict=True):
        ring.tell(version, place, saves=saves)
    if not run.until(lambda: all(int(one.read()["used"]) == version for one in told), "ranks did it", PATIENCE_S):
        raise SensorError("ranks have not done what they were told", mend="see the output of the job")
    if any(int(one.read()["failed"]) for one in told):
        raise SensorError(f"ranks have given it up: {run.said()[-2000:]}", mend="see the output of the job")
    return time.monotonic() - began_s


def try_all(show_progress: Callable[[float], None]) -> list[HandoverResult]:
    """All sizes."""
    results = []
    for at, gradient_mib in enumerate(GRADIENT_MIB):
        show_progress(at / len(GRADIENT_MIB))
        try:
            results.append(try_handover(gradient_mib))
        except (OSError, RingFormatError) as error:
            raise SensorError(f"the rings of the job cannot be read: {error}", mend="whichrank doctor") from error
    return results


def handover_table(results: Sequence[HandoverResult]) -> str:
    """A line for each size."""
    lines = [
        "| state of a rank | n | handed over, median | most | GB/s of all ranks | written to disk, median | loaded"
        " | restart, with that | disk / handed over | with restart |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in results:
        handed_s, written_s = float(np.median(one.handed_over_s)), float(np.median(one.written_s))
        rate = len(OTHER_PLACES) * one.state_bytes / handed_s / 1e9
        lines.append(
            f"| {one.state_bytes / 1e6:,.0f} MB | {len(one.handed_over_s)} | {handed_s:.2f} s"
            f" | {max(one.handed_over_s):.2f} s | {rate:.2f} | {written_s:.2f} s | {one.loaded_s:.2f} s"
            f" | {one.restarted_s:.1f} s | {(written_s + one.loaded_s) / handed_s:.2f}"
            f" | {(written_s + one.restarted_s) / handed_s:.1f} |"
        )
    return "\n".join(lines)
