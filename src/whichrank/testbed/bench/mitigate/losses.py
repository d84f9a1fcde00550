"""What is trained with shares that change, against even ones on the same samples: loss by loss, in real jobs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from whichrank.errors import RingFormatError, SensorError
from whichrank.ring.gate import RingGate
from whichrank.ring.shares import RingShares
from whichrank.testbed.bench.mitigate.rings import rings_of

MODES: Final = ("ddp", "fsdp2", "pipeline", "megatron", "megatron-1f1b", "megatron-interleaved")
"""Those of Megatron-Core need it; without it they are left out."""
DTYPES: Final = ("float64", "float32")
RANKS: Final = 4
ITERATIONS: Final = 200
CHANGED_EVERY: Final = 20
"""Iterations, at least."""
PATIENCE_S: Final = 300.0
_MODULE: Final = "whichrank.testbed.bench.mitigate.losses_job"


class LossesResult(msgspec.Struct, frozen=True, kw_only=True):
    """Of one sort of job."""

    mode: str
    dtype: str
    iterations: int
    changes: int
    """Of shares, while it trained."""
    uneven: int
    """Iterations with other shares than even ones."""
    difference: float
    """Of a loss to that with even shares, relative, the largest."""
    trained_difference: float
    """Of a parameter at the end, relative to the largest one of its rank, the largest."""


def plans() -> list[tuple[str, str]]:
    """Sorts of jobs, and their numbers."""
    has_megatron = importlib.util.find_spec("megatron") is not None
    modes = [mode for mode in MODES if has_megatron or not mode.startswith("megatron")]
    return [(mode, dtype) for mode in modes for dtype in DTYPES]


def try_losses(mode: str, dtype: str, seed: int) -> LossesResult:
    """Train twice: without whichrank, and with shares that are drawn anew again and again.

    Raises:
        SensorError: A job fails.
    """
    with tempfile.TemporaryDirectory(prefix="whichrank-losses-") as name:
        even, changed = Path(name) / "even", Path(name) / "changed"
        _train(even, mode, dtype)
        changes = _train(changed, mode, dtype, np.random.default_rng(seed))
        expected, found = (
            [json.loads((folder / f"said.{rank}").read_text()) for rank in range(RANKS)] for folder in (even, changed)
        )
    losses, trained = np.array(expected[0]["losses"]), np.array([one["trained"] for one in expected])
    shares, usual = np.array(found[0]["shares"])[:, 1], np.array(expected[0]["shares"])[:, 1]
    apart = np.abs(np.array([one["trained"] for one in found]) - trained).max(axis=1)
    return LossesResult(
        mode=mode, dtype=dtype, iterations=len(losses), changes=changes, uneven=int((shares != usual).sum()),
        difference=float(np.abs(np.array(found[0]["losses"]) / losses - 1).max()),
        trained_difference=float((apart / np.abs(trained).max(axis=1)).max()),
    )  # fmt: skip


def _train(folder: Path, mode: str, dtype: str, rng: np.random.Generator | None = None) -> int:
    """One job; how often its shares were changed: not at all where no numbers are to be drawn."""
    folder.mkdir()
    run = [sys.executable, "-m", "whichrank", "run", "--quiet", "--output", str(folder / "run"), "--"] if rng else []
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    environment = {"MODE": mode, "DTYPE": dtype, "ITERATIONS": str(ITERATIONS), "FOLDER": str(folder)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*run, *torchrun, "-m", _MODULE], env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            changes = _keep_changing(process, folder / "run", rng) if rng else 0
            code = process.wait(PATIENCE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if code not in (0, 3) or not (folder / "said.0").exists():  # 3: an alert
        said = (folder / "output").read_text(errors="replace")[-2000:]
        raise SensorError(f"the job has failed: {said}", mend="see its output")
    return changes


def _keep_changing(process: subprocess.Popen[bytes], output: Path, rng: np.random.Generator) -> int:
    """Tell other shares every so many iterations, until the job is over; how often."""
    while process.poll() is None and not _all_offer(rings_of(output)):
        time.sleep(0.02)
    version = 0
    with contextlib.ExitStack() as stack:
        told = [stack.enter_context(contextlib.closing(RingShares(path))) for path in rings_of(output)]
        gates = [RingGate(path) for path in rings_of(output)]
        for gate in gates:
            stack.callback(gate.let_go)
        rows = [shares.read() for shares in told]
        while process.poll() is None:
            steps = min(int(gate.read()["steps"]) for gate in gates)
            if steps >= CHANGED_EVERY * (version + 1) and all(int(one.read()["used"]) == version for one in told):
                version += 1
                counts = _any_split(rng, rows[0])
                firsts = np.cumsum(counts) - counts
                for shares, row in zip(told, rows, strict=True):
                    shares.tell(version, int(firsts[row["replica"]]), int(counts[row["replica"]]))
            time.sleep(0.001)
    return version


def _all_offer(rings: Sequence[Path]) -> bool:
    if len(rings) < RANKS:
        return False
    with contextlib.ExitStack() as stack:
        try:
            told = [stack.enter_context(contextlib.closing(RingShares(path))) for path in rings]
        except RingFormatError:
            return False  # a rank is just making its ring
        return all(int(one.read()["microbatches"]) for one in told)


def _any_split(rng: np.random.Generator, row: Any) -> np.ndarray[Any, Any]:
    """Any split in which each replica has something, (D,)."""
    parts, replicas = int(row["microbatches"]) // int(row["multiple"]), int(row["replicas"])
    cuts = np.sort(rng.choice(np.arange(1, parts), replicas - 1, replace=False))
    return np.diff([0, *cuts, parts]) * int(row["multiple"])


def losses_table(results: Sequence[LossesResult]) -> str:
    """A line for each sort of job."""
    lines = [
        "| job | numbers | iterations | changes of shares | uneven iterations"
        " | largest relative difference of a loss | of a parameter |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.mode} | {one.dtype} | {one.iterations} | {one.changes} | {one.uneven} | {one.difference:.1e}"
        f" | {one.trained_difference:.1e} |"
        for one in results
    ]
    return "\n".join(lines)


def try_all(seed: int, show_progress: Callable[[float], None]) -> list[LossesResult]:
    """All sorts of jobs."""
    results = []
    for at, (mode, dtype) in enumerate(plans()):
        show_progress(at / len(plans()))
        results.append(try_losses(mode, dtype, seed))
    return results
