"""A log in which no line has a date: in which order ranks issued what, and not when."""

from __future__ import annotations

from pathlib import Path

_OF_A_RANK = (
    "[rank{0}]:[E626 06:24:44.903 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600020 milliseconds "
    "before timing out.\n[rank{0}]:[E626 06:24:44.904 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank "
    "{0}]  failure detected by watchdog at work sequence id: 8 PG status: last enqueued work: 10, last completed "
    "work: 7\n"
)


def write_clockless_log(folder: Path) -> None:
    """Ranks 0, 1 and 3 of four wait for rank 2."""
    (folder / "job.log").write_text("".join(_OF_A_RANK.format(rank) for rank in (0, 1, 3)))
