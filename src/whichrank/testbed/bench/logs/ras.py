"""Answers of NCCL's RAS about a hung job, as text and as JSON, one or two looks in a file."""

from __future__ import annotations

import json
from typing import Any, Final

from whichrank.testbed.bench.logs.jobs import LAUNCHER, Job, Told

_HEAD: Final = """\
NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
{nodes:>7}{per_node:>11}{one:>13}{world:>11}{world:>9}

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1{nodes:>10}{per_node:>10}{world:>10}{there:>10}   RUNNING  {state}

Errors
======

{errors}
Warnings
========

{warnings}
"""
COUNT: Final = 640
BEHIND: Final = 3
OTHER_LINES: Final = 1500
"""More than 64 KiB of a log."""


def _place(rank: int) -> str:
    return f"GPU {rank % 8} managed by process {4700 + rank} on node 10.0.0.{rank // 8}"


def _text(job: Job, *, behind: int = 0, silent: bool = False, dead: bool = False) -> str:
    errors = warnings = ""
    if dead:
        errors += "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
        errors += f"  Process {4700 + job.culprit} on node 10.0.0.{job.culprit // 8} managing GPU {job.culprit % 8}\n\n"
    if silent or dead:
        errors += "#0-0 (fa93daea854b060b) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        errors += f"  Rank {job.culprit} -- {_place(job.culprit)}\n"
    if behind:
        others = [f"  {job.world - 1} ranks have launched up to operation {COUNT}"]
        if job.world == 2:
            other = 1 - job.culprit
            others = [f"  Rank {other} has launched up to operation {COUNT} -- {_place(other)}"]
        late = f"  Rank {job.culprit} has launched up to operation {COUNT - behind} -- {_place(job.culprit)}"
        lines = ("#0-0 (fa93daea854b060b) MISMATCH", "  Communicator ranks have different AllReduce operation counts",
                 *others, late)  # fmt: skip
        warnings = "\n".join(lines)
    state = "MISMATCH" if behind else "INCOMPLETE"
    there = job.world - (silent or dead)
    nodes, per_node = -(-job.world // 8), min(job.world, 8)
    return _HEAD.format(
        nodes=nodes, per_node=per_node, one=1, world=job.world, there=there, state=state, errors=errors,
        warnings=warnings,
    )  # fmt: skip


def _json(job: Job, at: str, *, behind: int = 0, silent: bool = False, dead: bool = False) -> str:
    def one(rank: int, **more: Any) -> dict[str, Any]:
        return {
            "rank": rank,
            "host": f"10.0.0.{rank // 8}",
            "pid": 4700 + rank,
            "cuda_dev": rank % 8,
            "nvml_dev": 0,
            **more,
        }

    absent = [job.culprit] if silent or dead else []
    ranks = [
        one(rank, status={"init_state": 0}, collective_counts={"AllReduce": COUNT - behind * (rank == job.culprit)})
        for rank in range(job.world)
        if rank not in absent
    ]
    missing = [one(rank, status={"unresponsive": True, "considered_dead": dead}) for rank in absent]
    whole = {"hash": "0x1", "size": job.world, "ranks": ranks, "missing_ranks": missing}
    said = {"nccl_version": "2.29.7", "timestamp": f"2026-06-01 {job.hour:02}:00:{at}", "communicators_count": 1}
    return json.dumps({**said, "communicators": [whole]}, indent=1)


def _looks(job: Job, count: int, **found: Any) -> Told:
    if job.random.randrange(2):
        text = "\n".join(_json(job, f"{10 * number + 10}", **found) for number in range(count))
    else:
        text = "\n".join(_text(job, **found) for _ in range(count))
    return Told([(LAUNCHER, text)], job.world > 2, is_whole=True)


def behind_twice(job: Job) -> Told:
    """Two looks find the culprit behind all others."""
    return _looks(job, 2, behind=BEHIND)


def behind_in_a_long_log(job: Job) -> Told:
    """The same as text, behind more of a log than is looked at to know what a file is."""
    looks = "\n".join(_text(job, behind=BEHIND) for _ in range(2))
    before = "\n".join(f"iteration {number} of 100000, loss 0.1234, 512 samples/s" for number in range(OTHER_LINES))
    return Told([(LAUNCHER, f"{before}\n{looks}")], job.world > 2, is_whole=True)


def no_answer_twice(job: Job) -> Told:
    """Two looks get no answer from it."""
    return _looks(job, 2, silent=True)


def dead(job: Job) -> Told:
    """It is considered dead."""
    return _looks(job, 1, dead=True)


def no_answer_once(job: Job) -> Told:
    """One look gets no answer from it."""
    told = _looks(job, 1, silent=True)
    told.decides = False
    return told
