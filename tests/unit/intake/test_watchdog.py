"""Lines of torch's watchdog: who had not enqueued what the others ran out of time in."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from whichrank.intake.logs import read_log
from whichrank.intake.read import read
from whichrank.intake.watchdog import Watchdog, dumps_of
from whichrank.model.incident import Cause, Incident
from whichrank.surface.analyze import analyze

AT = "[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616]"
STATUS = {
    "2.4": "[PG {pg} Rank {place}] Exception (either an error or timeout) detected by watchdog at work: {at}, last "
    "enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.",
    "2.5": "[PG ID {pg} PG GUID {pg}({desc}) Rank {place}] Exception (either an error or timeout) detected by watchdog "
    "at work: {at}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.",
    "2.9": "[PG ID {pg} PG GUID {pg}({desc}) Rank {place}]  failure detected by watchdog at work sequence id: {at} PG "
    "status: last enqueued work: {enqueued}, last completed work: {completed}",
}


def timed_out(
    rank: int, op: str = "ALLREDUCE", seq: int = 808, count: int = 1024, form: str = "2.9", pg: str = "0",
    place: int | None = None, desc: str = "default_pg", enqueued: int = 811,
) -> str:  # fmt: skip
    place = rank if place is None else place
    status = STATUS[form].format(pg=pg, desc=desc, place=place, at=seq, enqueued=enqueued, completed=seq - 1)
    return (
        f"[rank{rank}]:{AT} [Rank {place}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
        f"OpType={op}, NumelIn={count}, NumelOut={count}, Timeout(ms)=600000) ran for 600020 milliseconds before "
        f"timing out.\n[rank{rank}]:{AT} {status}\n"
    )


def asked(rank: int, enqueued: int = 807) -> str:
    return (
        f"[rank{rank}]:{AT} [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective "
        f"timeout from  rank 0 and we will try our best to dump the debug info. "
        f"Last enqueued NCCL work: {enqueued}, last "
        f"completed NCCL work: {enqueued}.This is most likely caused by incorrect usages of collectives\n"
    )


def said(tmp_path: Path, text: str) -> Incident:
    (tmp_path / "job.log").write_text("step 1 loss 0.1\n" + text)
    (recording,) = read([tmp_path]).recordings
    (incident,) = analyze(recording)
    return incident


@pytest.mark.parametrize("form", STATUS)
def test_who_had_not_enqueued_it_is_named(tmp_path: Path, form: str) -> None:
    incident = said(tmp_path, "".join(timed_out(rank, form=form) for rank in (0, 1, 3)) + asked(2))
    assert [c.rank for c in incident.culprits] == [2]
    assert "all_reduce #808" in incident.culprits[0].why
    assert incident.onset is None  # the lines have no year


def test_who_has_written_nothing_is_a_candidate_and_not_a_culprit(tmp_path: Path) -> None:
    incident = said(tmp_path, "".join(timed_out(rank) for rank in (0, 1, 3)))
    assert incident.culprits == ()
    assert [c.rank for c in incident.candidates] == [2]
    assert not incident.complete


def test_where_all_have_enqueued_it_nobody_is_named(tmp_path: Path) -> None:
    incident = said(tmp_path, "".join(timed_out(rank) for rank in range(4)))
    assert (incident.culprits, incident.candidates) == ((), ())


def test_who_had_enqueued_something_else_is_named_and_nothing_is_made_up(tmp_path: Path) -> None:
    incident = said(tmp_path, "".join(timed_out(rank, "BROADCAST" if rank == 2 else "ALLREDUCE") for rank in range(4)))
    assert ([c.rank for c in incident.culprits], incident.cause) == ([2], Cause.INCONSISTENT)
    assert incident.culprits[0].why.count("broadcast of 1024 elements where") == 1  # no reduction, no root


def test_a_member_that_waits_in_an_earlier_one_does_not_contradict_the_others(tmp_path: Path) -> None:
    # GIVEN ranks that have enqueued what another ran out of time in, and did not say so themselves
    lines = (
        timed_out(0) + timed_out(1) + timed_out(2, seq=806, enqueued=809) + asked(3, 811).replace("k: 811.", "k: 807.")
    )
    incident = said(tmp_path, lines)
    assert incident.cause != Cause.INCONSISTENT


def test_the_ranks_of_a_subgroup_are_global_ones(tmp_path: Path) -> None:
    # GIVEN ranks 4 to 7 as a group of their own
    text = "".join(timed_out(4 + place, pg="5", place=place, desc="mesh_tp") for place in (0, 1, 3))
    incident = said(tmp_path, text + asked(6).replace("GUID 0(default_pg) Rank 6", "GUID 5(mesh_tp) Rank 2"))
    assert [c.rank for c in incident.culprits] == [6]


def test_a_silent_member_of_a_subgroup_is_a_candidate_where_its_number_is_known(tmp_path: Path) -> None:
    # GIVEN the first, second and fourth of a group of every second rank
    incident = said(tmp_path, "".join(timed_out(2 * place, pg="5", place=place, desc="dp") for place in (0, 1, 3)))
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [4])


def test_a_group_of_which_nobody_knows_who_is_silent_says_nothing() -> None:
    watchdog = Watchdog()
    for rank, place in ((0, 0), (3, 1), (8, 3)):
        for line in timed_out(rank, pg="5", place=place, desc="dp").splitlines():
            watchdog.see(line)
    assert dumps_of(watchdog.standings.values()) == {}


def test_groups_of_the_same_name_are_told_apart_or_left_out() -> None:
    watchdog = Watchdog()
    for rank, place in ((0, 0), (1, 1), (2, 0), (3, 1)):
        for line in timed_out(rank, pg="1", place=place, form="2.4").splitlines():
            watchdog.see(line)
    assert dumps_of(watchdog.standings.values()) == {}


def test_numbers_of_sends_and_receives_are_not_compared() -> None:
    watchdog = Watchdog()
    for line in (timed_out(0, "SEND") + timed_out(1, "ALLREDUCE")).splitlines():
        watchdog.see(line)
    assert dumps_of(watchdog.standings.values()) == {}


def test_a_rank_is_known_by_its_prefix_or_in_the_first_group() -> None:
    watchdog = Watchdog()
    for line in (
        (timed_out(0) + timed_out(1, pg="7", place=0)).replace("[rank0]:", "").replace("[rank1]:", "").splitlines()
    ):
        watchdog.see(line)
    assert [(one.rank, one.group) for one in watchdog.standings.values()] == [(0, "0")]


def test_how_long_the_job_is_may_be_known_from_its_launcher(tmp_path: Path) -> None:
    # GIVEN that the last rank was killed before it wrote anything, and torchrun has said so
    summary = (
        "  time      : 2026-11-24_10:00:01\n  host      : node1\n  rank      : 3 (local_rank: 3)\n"
        "  exitcode  : -9 (pid: 771)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 771\n"
    )
    incident = said(tmp_path, "".join(timed_out(rank) for rank in (0, 1, 2)) + summary)
    assert [c.rank for c in incident.culprits or incident.candidates] == [3]


@pytest.mark.parametrize(
    "line",
    [
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" + "9" * 4000,
        "[PG ID 0 PG GUID 0(default_pg) Rank 99999999] last enqueued work: 3, last completed work: 9",
        "[rank1]: [PG ID 0 PG GUID " + "x" * 5000 + " Rank 1] last enqueued work: 3, last completed work: 2",
        "last enqueued work: -1, last completed work: -1",
    ],
)
def test_lines_that_only_look_alike_say_nothing(line: str) -> None:
    watchdog = Watchdog()
    watchdog.see(line)
    assert not watchdog.standings


def test_what_else_a_log_says_is_kept() -> None:
    log = read_log(io.BytesIO((timed_out(0) + "srun: error: node3: tasks 4-5: Killed\n").encode()))
    assert [one.rank for one in log.standings] == [0]
    assert [fact.rank for fact in log.facts] == [4, 5]
