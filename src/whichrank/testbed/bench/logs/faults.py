"""All faults of which logs are made, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from whichrank.testbed.bench.logs import jobs, launched, ras
from whichrank.testbed.bench.logs.jobs import Job, Told

FAULTS: Final[dict[str, Callable[[Job], Told]]] = {
    "late": jobs.late,
    "silent": jobs.silent,
    "killed": jobs.killed,
    "out of memory": jobs.short_of_memory,
    "crashed": jobs.crashed,
    "raised": jobs.raised,
    "device lost": jobs.lost_device,
    "another operation": jobs.another_operation,
    "one operation too many": jobs.one_too_many,
    "late in a subgroup": jobs.in_a_subgroup,
    "unfinished": jobs.unfinished,
    "desync report": jobs.desynchronised,
    "monitored barrier": jobs.absent,
    "mismatch in DETAIL": jobs.mismatched,
    "restarted": jobs.restarted,
    "NCCL's COLL lines": jobs.counted_by_nccl,
    "RAS: behind twice": ras.behind_twice,
    "RAS: no answer twice": ras.no_answer_twice,
    "RAS: dead": ras.dead,
    "RAS: no answer once": ras.no_answer_once,
    "RAS: behind twice, in a long log": ras.behind_in_a_long_log,
    "Ray: out of memory": launched.short_of_memory_in_ray,
    "Ray: a worker is lost": launched.lost_in_ray,
    "Ray: restarted": launched.restarted_by_ray,
    "JobSet: restarted": launched.restarted_by_jobset,
    "Kubernetes: a container is started again": launched.container_started_again,
    "Kubernetes: out of memory": launched.short_of_memory_in_a_pod,
    "Kubernetes: evicted": launched.evicted,
    "DeepSpeed: killed": launched.killed_by_deepspeed,
    "accelerate: killed": launched.ended_in_accelerate,
    "NVSwitch": launched.broken_switch,
    "machine check": launched.machine_check,
    "damaged memory": launched.damaged_memory,
    "network requests stall": launched.requests_stall,
    "network requests are slow": launched.requests_slow,
}
