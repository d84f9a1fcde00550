"""Logs of jobs that were started again, and who is named in each attempt."""

from __future__ import annotations

from whichrank.intake.recording import Intake
from whichrank.server.analyze import analyze

FIRST, SECOND = "601 03:00:00.1", "601 05:00:00.1"
RESTART = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"


def hung(at: str, late: int, seq: int, world: int = 8, *, silent: bool = False) -> dict[int, str]:
    """What each rank writes when all but one have run out of time; that one may be silent."""
    said = {}
    for rank in range(world):
        begin = f"[rank{rank}]:[E{at} ProcessGroupNCCL.cpp:632] "
        who = f"{begin}[PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        said[rank] = (
            f"{begin}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
            f"OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600001 milliseconds before timing "
            f"out.\n{who} failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: "
            f"{seq + 2}, last completed work: {seq - 1}\n"
        )
        if rank == late:
            asked = "Received a dump signal due to a collective timeout from  rank 0 and we will try our best to dump"
            count = f"Last enqueued NCCL work: {seq - 1}, last completed NCCL work: {seq - 1}.This is"
            said[rank] = "" if silent else f"{who}{asked}. {count}\n"
    return said


def whole(said: dict[int, str]) -> str:
    return "".join(said.values())


def names_by_attempt(intake: Intake) -> dict[int, list[int]]:
    """Culprits, or candidates where nobody is named, of each attempt by its number."""
    recordings = {intake.number: intake.recordings, **{one.number: one.recordings for one in intake.earlier}}
    return {
        number: [c.rank for one in those for i in analyze(one) for c in i.culprits or i.candidates]
        for number, those in recordings.items()
    }


def untimed(text: str) -> str:
    return text.replace(f"[E{FIRST} ", "[E ").replace(f"[E{SECOND} ", "[E ")
