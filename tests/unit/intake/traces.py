"""Traces as the profiler writes them, of a data-parallel job."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

STEP_GAP_US = 100.0
TRANSFER_US = 500.0


def trace_of(rank: int, ranks: int, own_us: list[list[float]], longest_us: list[float], **more: Any) -> dict[str, Any]:
    """The trace of a rank that computes, then reduces with all others.

    Args:
        rank: Whose.
        ranks: Of the job.
        own_us: Its kernels, step by step.
        longest_us: What the slowest rank computes, step by step.
    """
    at = 1e9 * (rank + 1)
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}]
    for step, (kernels, longest) in enumerate(zip(own_us, longest_us, strict=True)):
        begin = at
        for number, length in enumerate(kernels):
            events.append(_event("kernel", f"gemm_{number} {{[", at, length, {"stream": 7}))
            at += length
        args = {
            "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": ranks,
            "dtype": "Float", "Process Group Name": "0", "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(ranks))), "stream": 20,
        }  # fmt: skip
        waits = begin + longest + TRANSFER_US - at
        events.append(_event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args<4096ul>)", at, waits, args))
        at = begin + longest + TRANSFER_US + STEP_GAP_US
        events.append(_event("user_annotation", f"ProfilerStep#{10 + step}", begin, at - begin, {}))
    about = {
        "backend": "nccl", "rank": rank, "world_size": ranks,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": list(range(ranks))}],
    }  # fmt: skip
    return {"schemaVersion": 1, "distributedInfo": about, "traceEvents": events, "traceName": 'a "name" {[', **more}


def _event(kind: str, name: str, ts: float, dur: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def write_traces(folder: Path, slow: int | None = None, ranks: int = 8, steps: int = 8) -> Path:
    """A trace for each rank, of which one computes for longer."""
    rng = random.Random(1)
    own = [
        [[10000 * (1 + rng.gauss(0, 0.01)) * (1.6 if rank == slow else 1) for _ in range(4)] for _ in range(steps)]
        for rank in range(ranks)
    ]
    longest = [max(sum(own[rank][step]) for rank in range(ranks)) for step in range(steps)]
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        text = json.dumps(trace_of(rank, ranks, own[rank], longest))
        (folder / f"rank{rank}.pt.trace.json").write_text(text)
    return folder
