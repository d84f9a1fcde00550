"""Lines of torch's watchdog: who had not enqueued what the others ran out of time in."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from whichrank.intake.logs import read_log
from whichrank.intake.read import read
from whichrank.intake.watchdog import Watchdog
from whichrank.model.incident import Cause, Incident
from whichrank.server.analyze import analyze
from whichrank.verdict.words.text import paragraph

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
    place: int | None = None, desc: str = "default_pg", enqueued: int | None = None,
) -> str:  # fmt: skip
    place = rank if place is None else place
    enqueued = seq + 3 if enqueued is None else enqueued
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
    assert incident.culprits[0].why.count("broadcast of 1024 elements while") == 1  # no reduction, no root


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


def waits_and_nobody_is_named(incident: Incident, ranks: tuple[int, ...]) -> bool:
    return (incident.culprits, incident.candidates, incident.victims.ranks, incident.cause) == (
        (), (), ranks, Cause.UNKNOWN,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("desc", "rank", "place"), [("TENSOR_MODEL_PARALLEL_GROUP", 9, 1), ("mesh_tp", 8, 0), ("undefined", 30, 6)]
)
def test_a_member_that_alone_has_written_waits_for_members_that_are_not_known(
    desc: str, rank: int, place: int, tmp_path: Path
) -> None:
    text = timed_out(rank, "_ALLGATHER_BASE", 49387, pg="37", place=place, desc=desc) + asked(0, 62)
    incident = said(tmp_path, text)
    assert waits_and_nobody_is_named(incident, (rank,))
    assert incident.communicator
    assert incident.communicator.members == ()
    assert "where       all_gather #49387 on " in paragraph(incident)
    assert "members not known" in paragraph(incident)


def test_a_victim_in_such_a_group_is_not_named_in_another_one(tmp_path: Path) -> None:
    # GIVEN rank 1 has not entered what its data-parallel group waits in, since it waits in its tensor-parallel group
    others = "".join(timed_out(2 * p + 1, seq=500, pg="21", place=p, desc="DATA_PARALLEL_GROUP") for p in (1, 2, 3))
    idle = asked(1, 499).replace("GUID 0(default_pg) Rank 1", "GUID 21(DATA_PARALLEL_GROUP) Rank 0")
    for op in ("_ALLGATHER_BASE", "RECV", "COALESCED"):
        incident = said(tmp_path, others + idle + timed_out(1, op, 77, pg="37", place=1, desc="SOME_GROUP"))
        assert [c.rank for c in incident.culprits] == []
        assert set(incident.victims.ranks) == {1, 3, 5, 7}


def test_a_group_of_which_nobody_knows_who_is_silent_names_nobody(tmp_path: Path) -> None:
    text = "".join(timed_out(rank, pg="5", place=place, desc="dp") for rank, place in ((0, 0), (3, 1), (8, 3)))
    assert waits_and_nobody_is_named(said(tmp_path, text), (0, 3, 8))


def test_groups_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    places = ((0, 0), (1, 1), (2, 0), (3, 1))
    text = "".join(timed_out(rank, pg="1", place=place, form="2.4") for rank, place in places)
    assert waits_and_nobody_is_named(said(tmp_path, text), (0, 1, 2, 3))


@pytest.mark.parametrize("op", ["SEND", "RECV", "COALESCED"])
def test_numbers_of_sends_and_receives_are_not_compared(op: str, tmp_path: Path) -> None:
    text = "".join(timed_out(rank, op, seq) for rank, seq in enumerate((40, 80, 80, 12)))
    assert waits_and_nobody_is_named(said(tmp_path, text), (0, 1, 2, 3))


def test_two_that_stand_at_different_numbers_may_both_have_gone_wrong(tmp_path: Path) -> None:
    # GIVEN one of two ranks waits: the other one is late, or this one has issued one operation too many
    incident = said(tmp_path, timed_out(0, seq=4101, enqueued=4101) + asked(1, 4100))
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [1, 0])


def test_one_that_waits_for_all_others_comes_first(tmp_path: Path) -> None:
    incident = said(
        tmp_path, timed_out(0, seq=4101, enqueued=4101) + "".join(asked(rank, 4100) for rank in range(1, 8))
    )
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), list(range(8)))


def test_a_rank_that_is_only_mentioned_is_one_of_the_job(tmp_path: Path) -> None:
    incident = said(tmp_path, "".join(map(timed_out, (0, 1, 3))) + asked(2).replace("rank 0 and", "rank 34 and"))
    assert incident.communicator
    assert len(incident.communicator.members) == 35
    assert incident.culprits == ()  # nothing is known of most


def test_a_line_in_which_two_have_written_is_of_the_nearer_one(tmp_path: Path) -> None:
    torn = f"[rank2]:{AT} [Rank 2] Some NCCL " + asked(5)
    incident = said(tmp_path, "".join(map(timed_out, (0, 1, 2, 3, 4))) + torn)
    assert [c.rank for c in incident.culprits] == [5]


def test_who_ran_out_of_time_in_the_same_and_ended_at_once_waits_too(tmp_path: Path) -> None:
    text = "".join(timed_out(rank).splitlines(keepends=True)[0] for rank in (1, 3)) + timed_out(0) + asked(2)
    incident = said(tmp_path, text)
    assert (incident.victims.ranks, [c.rank for c in incident.culprits]) == ((0, 1, 3), [2])


def test_lines_without_those_that_wait_leave_it_open(tmp_path: Path) -> None:
    (tmp_path / "node1.log").write_text(asked(2) + asked(3))
    (recording,) = read([tmp_path]).recordings
    assert (analyze(recording), bool(recording.left_open)) == ((), True)


def test_a_rank_is_known_by_its_prefix_or_in_the_first_group() -> None:
    watchdog = Watchdog()
    for line in (
        (timed_out(0) + timed_out(1, pg="7", place=0)).replace("[rank0]:", "").replace("[rank1]:", "").splitlines()
    ):
        watchdog.see(line)
    assert [(one.rank, one.group) for one in watchdog.standings] == [(0, "0")]


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
