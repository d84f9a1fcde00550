"""A rank's completed operations and steps as a batch of an agent beside it; used where no operation is in flight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from whichrank.intake.facts import Fact
from whichrank.model.codes import Status
from whichrank.model.kinds import Kind, is_collective
from whichrank.model.telemetry import COMM_ROW, RANK_ROW, RECORD_REPORTED, VERSION, Batch, CommInfo, Event, ProcessState

OUT_OF_MEMORY: Final = "killed by the kernel: out of memory"
"""The text of such an exit, as agents write it."""
SINCE_NS: Final = 10**9
"""From the latest time that a recording has to when it was made, which it does not say."""
FIRST_STEP: Final = 4
"""Number of the first step of a recording: it began after those in which a job warms up."""


def batch_of(
    rank: int, world_size: int, infos: Iterable[CommInfo], records: NDArray[Any], latest_ns: int, host: str = ""
) -> Batch:
    """What an agent says of this rank.

    Args:
        rank: Global rank.
        world_size: Ranks of the job.
        infos: The communicators that it is in.
        records: Rows of RECORD_REPORTED.
        latest_ns: The latest time on its clock.
        host: Where it ran; empty if that is not known.
    """
    mine = [info for info in infos if rank in info.members]
    read_ns = latest_ns + SINCE_NS
    return Batch(
        version=VERSION, job="", agent=f"recording:{rank}", host=host, sequence=1, sent_ns=read_ns,
        sent_realtime_ns=read_ns, delay_bound_ns=0, node_ranks=1, comm_info=mine, node=host or f"rank {rank}",
        ranks=rank_row(rank, world_size, read_ns, len(records)).tobytes(), records=records.tobytes(),
        comms=_comm_rows(rank, mine, records).tobytes(),
    )  # fmt: skip


def ended_batch(fact: Fact, world_size: int, now_ns: int, ended_ns: int = 0) -> Batch:
    """What an agent says of a rank of which nothing is known but that its process has ended.

    Args:
        fact: What is known.
        world_size: Ranks of the job.
        now_ns: When it was read.
        ended_ns: When it ended; 0: when it was read.
    """
    row = rank_row(fact.rank, world_size, now_ns, 0)
    status = -1 if fact.is_dead else fact.status
    ended_ns = ended_ns or now_ns
    row["pid"], row["exit_status"], row["state"], row["ended_ns"] = fact.pid, status, ProcessState.GONE, ended_ns
    if fact.exception:
        row["exception"], row["exception_ns"] = fact.exception.encode()[:191], ended_ns
    events = [Event("exit", fact.rank, fact.pid, ended_ns, OUT_OF_MEMORY, status)] if fact.lacked_memory else []
    return Batch(
        version=VERSION, job="", agent=f"recording:{fact.rank}", host=fact.host, sequence=1, sent_ns=now_ns,
        sent_realtime_ns=now_ns, delay_bound_ns=0, node_ranks=1, ranks=row.tobytes(),
        node=fact.host or f"rank {fact.rank}", events=events,
    )  # fmt: skip


def rank_row(rank: int, world_size: int, read_ns: int, issued: int) -> NDArray[Any]:
    """A row of RANK_ROW of a rank whose process nobody looked at."""
    row = np.zeros(1, RANK_ROW)
    row["rank"], row["world_size"], row["local_rank"], row["exit_status"] = rank, world_size, -1, -1
    row["read_ns"] = row["heartbeat_ns"] = read_ns
    row["created_ns"], row["ordinal"], row["head"] = 1, issued, issued
    return row


def _comm_rows(rank: int, infos: list[CommInfo], records: NDArray[Any]) -> NDArray[Any]:
    rows = np.zeros(len(infos), COMM_ROW)
    rows["rank"], rows["state"] = rank, 1
    is_round = is_collective(records["row"]["kind"])
    for row, info in zip(rows, infos, strict=True):
        mine = records["row"]["counter"][is_round & (records["comm"] == info.comm_id)]
        row["comm_id"], row["group_rank"] = info.comm_id, info.members.index(rank)
        row["issued"] = row["done"] = row["completed"] = int(mine.max(initial=0))
    return rows


def steps_among(records: NDArray[Any], rank: int, at_ns: NDArray[np.int64], first: int = FIRST_STEP) -> NDArray[Any]:
    """The operations with a step at each of these times.

    Args:
        records: Rows of RECORD_REPORTED of one rank, in the order of issue; their ordinals are set.
        rank: Whose.
        at_ns: Ends of iterations, one opens the first.
        first: Number of the first one.
    """
    marks = np.zeros(len(at_ns), RECORD_REPORTED)
    marks["rank"], row = rank, marks["row"]
    row["kind"], row["status"], row["counter"] = Kind.STEP, Status.DONE, np.arange(first, first + len(at_ns))
    row["t_issue_ns"] = row["t_end_ns"] = at_ns
    row["ordinal"] = np.searchsorted(records["row"]["t_issue_ns"], at_ns, side="left")
    records["row"]["ordinal"] = records["row"]["seq"] = np.arange(1, len(records) + 1)
    records["row"]["status"] = Status.DONE
    return np.concatenate((records, marks))
