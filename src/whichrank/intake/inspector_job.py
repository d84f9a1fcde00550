"""What NCCL's Inspector has recorded of each process, as what an agent beside each rank would have reported.

Members of a collective leave it together, so whoever took the shortest has entered last: what a rank does between its
collectives is as long as these differ. Where nothing says when they were, of a job with one communicator they are laid
end to end, with as much time between them as passed while they were written. Nothing says an iteration but that the
same collectives recur; it begins behind the longest pause. Communication that computation hides counts as blocked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.errors import IncompleteDataError
from whichrank.intake.clocks import on_one_clock
from whichrank.intake.communicators import comm_id_of
from whichrank.intake.flight_dump import UNKNOWN_DTYPE
from whichrank.intake.inspector import OP, Inspected
from whichrank.intake.reporting import SINCE_NS, batch_of, steps_among
from whichrank.model.kinds import Kind
from whichrank.model.signature import UNKNOWN_REDUCE_OP
from whichrank.model.telemetry import RECORD_REPORTED, Batch, CommInfo

ZERO_US: Final = 1e9
"""Clocks begin with the first operation: times must be above zero."""
LEAST_PERIODS: Final = 6
CONSIDERED: Final = 1 << 14
"""Operations, the last ones, that are searched for what recurs."""
ALIKE: Final = 0.99
"""Share of operations that must be the same a period later."""
_KINDS: Final = {
    "AllReduce": Kind.ALL_REDUCE, "Broadcast": Kind.BROADCAST, "Reduce": Kind.REDUCE, "AllGather": Kind.ALL_GATHER,
    "ReduceScatter": Kind.REDUCE_SCATTER, "AllToAll": Kind.ALL_TO_ALL, "Gather": Kind.GATHER, "Scatter": Kind.SCATTER,
}  # fmt: skip


def batches_of(processes: Mapping[int, Inspected], world_size: int) -> tuple[tuple[Batch, ...], float]:
    """What an agent beside each rank would have reported, and when all was over by the recording's clock.

    Args:
        processes: By rank.
        world_size: Ranks of the job.

    Raises:
        IncompleteDataError: Operations have no times, and there are several communicators.
    """
    ops = _timed(processes)
    infos = _infos(processes)
    reported = {rank: _records(one, ops[rank], rank, infos) for rank, one in sorted(processes.items())}
    on_one_clock(reported)
    longest = max(reported, key=lambda rank: len(reported[rank]))
    at_ns = _iterations(reported[longest]["row"])
    reported = {rank: steps_among(records, rank, at_ns) for rank, records in reported.items()}
    latest_ns = max(int(records["row"]["t_end_ns"].max()) for records in reported.values())
    batches = tuple(
        batch_of(rank, world_size, infos.values(), records, latest_ns, processes[rank].host)
        for rank, records in reported.items()
    )
    return batches, (latest_ns + SINCE_NS) / 1e9


def _timed(processes: Mapping[int, Inspected]) -> dict[int, NDArray[Any]]:
    """Of each rank its operations in order, with times that begin at `ZERO_US`."""
    ops = {rank: one.ops for rank, one in processes.items()}
    if any(np.isnan(mine["start_us"]).any() for mine in ops.values()):
        names = {comm.name for one in processes.values() for comm in one.comms}
        if len(names) > 1:
            raise IncompleteDataError(
                "NCCL's Inspector has not recorded when operations were, and there are several communicators",
                mend="record with NCCL_INSPECTOR_DUMP_VERBOSE=1",
            )
        ops = _laid_out(ops)
    first_us = {rank: float(mine["start_us"].min()) for rank, mine in ops.items()}
    found = {}
    for rank, mine in ops.items():
        own = mine[np.argsort(mine["start_us"], kind="stable")].copy()
        own["start_us"] += ZERO_US - first_us[rank]
        own["end_us"] += ZERO_US - first_us[rank]
        found[rank] = own
    return found


def _laid_out(ops: Mapping[int, NDArray[Any]]) -> dict[int, NDArray[Any]]:
    """With times, of operations of one communicator that all ranks have recorded."""
    numbers = sorted(set.intersection(*(set(mine["number"].tolist()) for mine in ops.values())))
    table = {}
    for rank, mine in ops.items():
        known = np.zeros(len(numbers), OP)
        _, first = np.unique(mine["number"], return_index=True)
        known[:] = mine[first][np.isin(mine["number"][first], numbers)]
        table[rank] = known
    longest_us = np.max([mine["took_us"] for mine in table.values()], axis=0) if numbers else np.zeros(0)
    written_us = np.median([np.ptp(mine["dumped_us"]) if len(mine) else 0.0 for mine in table.values()])
    between_us = max(written_us - longest_us.sum(), 0.0) / max(len(numbers), 1)
    end_us = np.cumsum(longest_us + between_us)
    for mine in table.values():
        mine["start_us"], mine["end_us"] = end_us - mine["took_us"], end_us
    return table


def _infos(processes: Mapping[int, Inspected]) -> dict[str, CommInfo]:
    members: dict[str, dict[int, int]] = {}
    desc: dict[str, str] = {}
    for rank, one in processes.items():
        for comm in one.comms:
            members.setdefault(comm.name, {})[comm.rank] = rank
            desc[comm.name] = comm.desc
    found = {}
    for name, of in members.items():
        ranks = [of[place] for place in sorted(of)]
        key = (name, tuple(ranks))
        found[name] = CommInfo(comm_id_of(key), desc[name] or name, desc[name], "trace", len(ranks), 0, ranks)
    return found


def _records(one: Inspected, ops: NDArray[Any], rank: int, infos: Mapping[str, CommInfo]) -> NDArray[Any]:
    reported = np.zeros(len(ops), RECORD_REPORTED)
    reported["rank"], row = rank, reported["row"]
    reported["comm"] = np.array([infos[comm.name].comm_id for comm in one.comms], np.uint64)[ops["comm"]]
    row["counter"] = (ops["number"] + 1) & 0xFFFFFFFF
    row["kind"] = np.array([_KINDS.get(name, Kind.OTHER) for name in one.names], np.uint8)[ops["what"]]
    row["count"], row["dtype"], row["peer"] = ops["size_bytes"], UNKNOWN_DTYPE, -1
    row["reduce_op"] = UNKNOWN_REDUCE_OP
    row["t_issue_ns"], row["t_end_ns"] = np.rint(ops["start_us"] * 1e3), np.rint(ops["end_us"] * 1e3)
    until_us = np.append(0.0, np.maximum.accumulate(ops["end_us"])[:-1])
    row["wait_us"] = np.clip(ops["end_us"] - np.maximum(ops["start_us"], until_us), 0, 0xFFFFFFFF)
    return reported


def _iterations(rows: NDArray[Any]) -> NDArray[np.int64]:
    """When iterations begin and end, by operations that recur; nothing if none do."""
    rows = rows[-CONSIDERED:]
    tokens = rows["count"].astype(np.int64) * 256 + rows["kind"]
    period = next(
        (n for n in range(1, len(tokens) // LEAST_PERIODS + 1) if (tokens[n:] == tokens[:-n]).mean() >= ALIKE), 0
    )
    if not period:
        return np.zeros(0, np.int64)
    start_ns, end_ns = rows["t_issue_ns"].astype(np.int64), np.maximum.accumulate(rows["t_end_ns"].astype(np.int64))
    pause_ns = np.maximum(start_ns[1:] - end_ns[:-1], 0)
    phase = int(np.argmax([pause_ns[first::period].mean() for first in range(min(period, len(pause_ns)))]))
    return end_ns[:-1][phase::period]
