"""Traces of the ranks of a job, as what an agent beside each would have reported.

The clocks of all ranks are made one, see `clocks`. Steps are numbered by the profiler, so those of different ranks are
the same ones. An operation's number in its group is what the trace says, else its place among the group's operations
in the step. Of a step the time in which only NCCL's kernels run is blocked, and it is the last part of such a kernel:
computation that hides it comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.intake.clocks import on_one_clock
from whichrank.intake.communicators import Key, comm_id_of
from whichrank.intake.flight_dump import DTYPES, UNKNOWN_DTYPE
from whichrank.intake.kineto import Trace
from whichrank.intake.reporting import FIRST_STEP, SINCE_NS, batch_of, steps_among
from whichrank.model.kinds import Kind
from whichrank.model.signature import UNKNOWN_REDUCE_OP
from whichrank.model.telemetry import RECORD_REPORTED, Batch, CommInfo

ZERO_NS: Final = 10**12
"""Clocks begin with the first kernel, and steps before it: times must be above zero."""
IN_A_STEP: Final = 1 << 14
"""Operations of a group in a step, at most, where they are numbered by their place."""
_KINDS: Final = {
    "allreduce": Kind.ALL_REDUCE, "all_reduce": Kind.ALL_REDUCE, "allreduce_coalesced": Kind.ALL_REDUCE_COALESCED,
    "broadcast": Kind.BROADCAST, "reduce": Kind.REDUCE, "allgather": Kind.ALL_GATHER, "all_gather": Kind.ALL_GATHER,
    "_allgather_base": Kind.ALL_GATHER, "allgather_into_tensor_coalesced": Kind.ALL_GATHER_COALESCED,
    "reduce_scatter": Kind.REDUCE_SCATTER, "_reduce_scatter_base": Kind.REDUCE_SCATTER,
    "reduce_scatter_tensor_coalesced": Kind.REDUCE_SCATTER_COALESCED, "all_to_all": Kind.ALL_TO_ALL,
    "all_to_allv": Kind.ALL_TO_ALL, "alltoall": Kind.ALL_TO_ALL, "gather": Kind.GATHER, "scatter": Kind.SCATTER,
    "barrier": Kind.BARRIER, "send": Kind.SEND, "recv": Kind.RECV,
}  # fmt: skip


def batches_of(traces: Mapping[int, Trace], world_size: int) -> tuple[tuple[Batch, ...], float]:
    """What an agent beside each rank would have reported, and when all was over by the recording's clock.

    Args:
        traces: By rank.
        world_size: Ranks of the job.
    """
    infos: dict[Key, CommInfo] = {}
    base = min((trace.steps[0][0] for trace in traces.values() if trace.steps), default=0)
    reported = []
    for rank, trace in sorted(traces.items()):
        records, latest_ns = _records(trace, rank, infos, base, traces.keys())
        reported.append((rank, records, latest_ns))
    moved = on_one_clock({rank: records for rank, records, _ in reported})
    reported = [(rank, records, latest_ns + moved[rank]) for rank, records, latest_ns in reported]
    latest = max(latest_ns for _, _, latest_ns in reported)
    batches = tuple(
        batch_of(rank, world_size, infos.values(), records, latest_ns, traces[rank].host)
        for rank, records, latest_ns in reported
    )
    return batches, (latest + SINCE_NS) / 1e9


def _records(
    trace: Trace, rank: int, infos: dict[Key, CommInfo], base: int, traced: Set[int]
) -> tuple[NDArray[Any], int]:
    mine = np.flatnonzero(trace.nccl >= 0)
    said = [trace.said[number] for number in trace.nccl[mine].tolist()]
    start_ns, end_ns = trace.start_ns[mine], trace.end_ns[mine]
    numbers = np.array([number for number, _ in trace.steps], np.int64)
    begins_ns = np.array([at for _, at in trace.steps], np.int64)
    step = np.searchsorted(begins_ns, start_ns, side="right") - 1
    reported = np.zeros(len(mine), RECORD_REPORTED)
    reported["rank"], row = rank, reported["row"]
    row["reduce_op"] = UNKNOWN_REDUCE_OP
    place: dict[tuple[str, int], int] = {}
    comm_of = {name: _info(trace, name, rank, infos, traced).comm_id for name in {one.group for one in said}}
    for i, (one, of) in enumerate(zip(said, step.tolist(), strict=True)):
        place[one.group, of] = place.get((one.group, of), 0) + 1
        reported["comm"][i] = comm_of[one.group]
        number = int(numbers[of]) if of >= 0 else 0
        row["counter"][i] = one.seq if one.seq >= 0 else (number * IN_A_STEP + place[one.group, of]) & 0xFFFFFFFF
        row["kind"][i] = _KINDS.get(one.collective, Kind.OTHER)
        row["count"][i], row["peer"][i] = max(one.count, 0), one.peer
        row["dtype"][i] = DTYPES.get(one.dtype, UNKNOWN_DTYPE)
    row["t_issue_ns"], row["t_end_ns"] = start_ns + ZERO_NS, end_ns + ZERO_NS
    row["wait_us"] = np.clip(_exposed_ns(trace, mine) // 1000, 0, 0xFFFFFFFF)
    first = int(numbers[0]) + max(FIRST_STEP - base, 0) if len(numbers) else FIRST_STEP
    records = steps_among(reported, rank, begins_ns + ZERO_NS, first)
    latest_ns = int(max(trace.end_ns.max(initial=0), begins_ns.max(initial=0))) + ZERO_NS
    return records, latest_ns


def _info(trace: Trace, name: str, rank: int, infos: dict[Key, CommInfo], traced: Set[int]) -> CommInfo:
    """The communicator of this name, with those of its members that were traced: what others did nobody knows.

    Of one whose members are not known nobody else is known to be in it.
    """
    desc, members = trace.groups.get(name, ("", ()))
    members = tuple(member for member in members if member in traced) if rank in members else (rank,)
    key = (name, members)
    if key not in infos:
        infos[key] = CommInfo(comm_id_of(key), name, desc, "trace", len(members), 0, list(members))
    return infos[key]


def _exposed_ns(trace: Trace, of: NDArray[np.int64]) -> NDArray[np.int64]:
    """For so long nothing but these kernels ran while each of them did."""
    other = np.flatnonzero(trace.nccl < 0)
    start, reached = trace.start_ns[other], np.maximum.accumulate(trace.end_ns[other])
    begin = np.maximum(start, np.append(0, reached[:-1])) if len(other) else start
    length = np.maximum(reached - begin, 0)
    before = np.cumsum(length) - length

    def covered_until(at: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(begin):
            return np.zeros(len(at), np.int64)
        piece = np.searchsorted(begin, at, side="right") - 1
        inside = np.clip(at - begin[piece], 0, length[piece])
        return np.where(piece >= 0, before[piece] + inside, 0)

    start_ns, end_ns = trace.start_ns[of], trace.end_ns[of]
    return end_ns - start_ns - (covered_until(end_ns) - covered_until(start_ns))
