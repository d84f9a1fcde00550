"""Attempts of one job whose files lie together: each has its verdict, and nothing of one is counted in another."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from attempt_logs import FIRST, RESTART, SECOND, hung, names_by_attempt, untimed, whole

from whichrank.errors import UsageError
from whichrank.intake.attempts import attempt_in
from whichrank.intake.each_attempt import OF_LAST_ATTEMPT, STARTED_AGAIN
from whichrank.intake.grammar import worded
from whichrank.intake.log_time import UNTIMED, torch_time_s, torchrun_time_s
from whichrank.intake.read import read
from whichrank.intake.recording import Intake, Recording
from whichrank.model.incident import Cause, Incident
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.dumps.cases import cases
from whichrank.testbed.bench.dumps.played import dump_of, play

DAY_S = 86400.0


def intake_of(folder: Path, files: dict[str, str]) -> Intake:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read([folder])


def found(folder: Path, files: dict[str, str]) -> tuple[Recording, Incident]:
    (recording,) = intake_of(folder, files).recordings
    (incident,) = analyze(recording)
    return recording, incident


@pytest.mark.parametrize(
    ("names", "before", "after", "silent"),
    [
        (("attempt_0.log", "attempt_1.log"), 167, 40, True),
        (("a.log", "b.log"), 40, 167, True),
        (("z.log", "a.log"), 40, 40, True),
        (("z.log", "a.log"), 167, 40, False),
    ],
)
def test_files_of_two_attempts(names: tuple[str, str], before: int, after: int, silent: bool, tmp_path: Path) -> None:
    # GIVEN rank 5 was late in the first attempt, and rank 2 is in the second
    files = {names[0]: whole(hung(FIRST, 5, before)), names[1]: whole(hung(SECOND, 2, after, silent=silent))}
    # WHEN they are read THEN the verdict is about the second one, and the first has one of its own
    recording, incident = found(tmp_path, files)
    intake = read([tmp_path])
    assert [c.rank for c in incident.culprits or incident.candidates] == [2]
    assert bool(incident.culprits) != silent
    assert incident.stage
    assert incident.stage.op == f"all_reduce #{after} on default_pg"
    assert (recording.remarks, intake.number, intake.attempts) == ((), 2, 2)
    assert names_by_attempt(intake) == {2: [2], 1: [5]}
    assert intake.title_of(2) == "attempt 2 of 2 (last)"


@pytest.mark.parametrize(
    ("between", "is_timed"), [("", True), (RESTART, True), ("", False), ("TORCHELASTIC_RESTART_COUNT=1\n", False)]
)
def test_one_log_of_two_attempts(between: str, is_timed: bool, tmp_path: Path) -> None:
    text = whole(hung(FIRST, 5, 167)) + between + whole(hung(SECOND, 2, 40))
    intake = intake_of(tmp_path, {"job.log": text if is_timed else untimed(text)})
    assert (names_by_attempt(intake), intake.recordings[0].remarks) == ({2: [2], 1: [5]}, ())


def test_each_rank_has_a_log_of_both(tmp_path: Path) -> None:
    first, second = hung(FIRST, 5, 167), hung(SECOND, 2, 40, silent=True)
    _, incident = found(tmp_path, {f"rank{rank}.log": first[rank] + second[rank] for rank in range(8)})
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [2])


def test_folders_as_torchrun_makes_them(tmp_path: Path) -> None:
    logs = zip((2, 10), (hung(FIRST, 5, 167), hung(FIRST, 2, 40, silent=True)), strict=True)
    files = {f"none_x/attempt_{n}/{rank}/stderr.log": text for n, said in logs for rank, text in said.items()}
    _, incident = found(tmp_path, files)
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [2])
    assert names_by_attempt(read([tmp_path])) == {2: [2], 1: [5]}


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_log_of_three_attempts(is_timed: bool, tmp_path: Path) -> None:
    restart = RESTART.replace("2/3", "1/3")
    third = whole(hung("601 07:00:00.1", 6, 90)).replace(
        "[E601 07:00:00.1 ", "[E601 07:00:00.1 " if is_timed else "[E "
    )
    text = whole(hung(FIRST, 5, 167)) + RESTART + whole(hung(SECOND, 2, 40)) + restart + third
    intake = intake_of(tmp_path, {"job.log": text if is_timed else untimed(text)})
    assert names_by_attempt(intake) == {3: [6], 2: [2], 1: [5]}
    assert [intake.title_of(one.number) for one in intake.earlier] == ["attempt 2 of 3", "attempt 1 of 3"]


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_log_that_ends_with_a_restart(is_timed: bool, tmp_path: Path) -> None:
    text = whole(hung(FIRST, 5, 167)) + RESTART
    intake = intake_of(tmp_path, {"job.log": text if is_timed else untimed(text)})
    assert (names_by_attempt(intake), intake.recordings[0].remarks) == ({1: [5]}, (STARTED_AGAIN,))
    assert intake.title_of(1) == "attempt 1 of 2"


def test_the_agents_of_all_nodes_write_of_one_restart(tmp_path: Path) -> None:
    # GIVEN logs of two nodes in one file, so that the word of the second agent comes late
    second = {rank: untimed(text) for rank, text in hung(SECOND, 2, 40).items()}
    halves = ["".join(second[rank] for rank in half) for half in (range(4), range(4, 8))]
    text = untimed(whole(hung(FIRST, 5, 167))) + RESTART + halves[0] + RESTART + halves[1]
    # THEN there are two attempts and not three
    assert names_by_attempt(intake_of(tmp_path, {"job.log": text})) == {2: [2], 1: [5]}


def test_a_job_that_slurm_has_queued_again(tmp_path: Path) -> None:
    again = worded("slurmstepd: the job is queued again", job=71, host="n1") + "\n"
    text = untimed(whole(hung(FIRST, 5, 167)) + 2 * again + whole(hung(SECOND, 2, 40)))
    assert names_by_attempt(intake_of(tmp_path, {"slurm-71.out": text})) == {2: [2], 1: [5]}


def test_the_log_of_a_launcher_beside_folders_of_attempts_is_cut(tmp_path: Path) -> None:
    # GIVEN rank 5 was killed in the first attempt, as the launcher's own log says, which has no number
    death = worded("torchrun: a failure", stamp="2026-06-01_02:49:09", host="node0", rank=5, local=5, pid=77, code=-9,
                   signal=9, signal_name="SIGKILL")  # fmt: skip
    files = {"launcher.log": f"{death}\n"}
    for number, said in ((0, hung(FIRST, 5, 167, silent=True)), (1, hung(SECOND, 2, 40))):
        files |= {f"attempt_{number}/{rank}/stderr.log": text for rank, text in said.items()}
    intake = intake_of(tmp_path, files)
    (recording,) = intake.earlier[0].recordings
    (incident,) = analyze(recording)
    # THEN its death is of that attempt and of no other one
    assert ([c.rank for c in incident.culprits], incident.cause) == ([5], Cause.PROCESS_EXIT)
    assert (names_by_attempt(intake)[2], intake.recordings[0].said) == ([2], {})


def test_what_nccl_has_counted_before_a_restart_is_not_compared_with_what_it_counts_after(tmp_path: Path) -> None:
    def counted(late: int, pids: int) -> str:
        lines = []
        for rank in range(8):
            who = {"host": "n", "pid": pids + rank, "tid": 1, "local": rank}
            lines.append(worded("NCCL: who is where", comm="0x55", rank=rank, world=8, bus_id="b3000", comm_id="0x9",
                                **who))  # fmt: skip
        for count in range(9):
            lines += [
                worded("NCCL: a collective is enqueued", function="AllReduce", count=count, numel=64, comm="0x55",
                       world=8, host="n", pid=pids + rank, tid=1, local=rank)
                for rank in range(8) if rank != late or count < 4
            ]  # fmt: skip
        return "\n".join(lines) + "\n"

    intake = intake_of(tmp_path, {"job.log": counted(5, 100) + RESTART + counted(2, 200)})
    assert names_by_attempt(intake) == {2: [2], 1: [5]}


def test_logs_of_ranks_without_times_say_that_earlier_attempts_are_left_out(tmp_path: Path) -> None:
    first, second = hung(FIRST, 5, 167), hung(SECOND, 2, 40)
    files = {f"rank{rank}.log": untimed(first[rank] + RESTART + second[rank]) for rank in range(8)}
    intake = intake_of(tmp_path, files)
    assert (names_by_attempt(intake), intake.recordings[0].remarks) == ({1: [2]}, (OF_LAST_ATTEMPT,))
    assert intake.title_of(1) == ""


def test_a_new_year_between_them(tmp_path: Path) -> None:
    first, second = hung("1231 23:00:00.1", 5, 40), hung("101 01:00:00.1", 2, 40)
    _, incident = found(tmp_path, {"a.log": whole(first), "b.log": whole(second)})
    assert [c.rank for c in incident.culprits] == [2]


def test_one_attempt_in_two_logs_is_one(tmp_path: Path) -> None:
    said = hung(FIRST, 5, 167)
    recording, incident = found(tmp_path, {"all.log": whole(said), **{f"{r}.log": text for r, text in said.items()}})
    assert ([c.rank for c in incident.culprits], recording.remarks) == ([5], ())


def test_a_death_of_an_earlier_attempt_does_not_count(tmp_path: Path) -> None:
    death = (
        "  time      : 2026-06-01_02:50:09\n  host      : node1\n  rank      : 5 (local_rank: 5)\n"
        "  exitcode  : -9 (pid: 771)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 771\n"
    )
    first = whole(hung(FIRST, 5, 167, silent=True)) + death
    recording, incident = found(tmp_path, {"job.log": first + whole(hung(SECOND, 2, 40))})
    assert ([c.rank for c in incident.culprits], recording.said) == ([2], {})
    assert names_by_attempt(read([tmp_path]))[1] == [5]


def test_logs_without_times_or_order_are_refused(tmp_path: Path) -> None:
    texts = [untimed(whole(hung(FIRST, late, seq))) for late, seq in ((5, 167), (2, 40))]
    with pytest.raises(UsageError, match="several attempts, and nothing says which one is the last"):
        found(tmp_path, {"a.log": texts[0], "b.log": texts[1]})


def earlier(dump: dict[str, Any], by_s: float) -> dict[str, Any]:
    times = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
    moved = [{k: v - int(by_s * 1e9) if k in times and v else v for k, v in e.items()} for e in dump["entries"]]
    return {**dump, "entries": moved}


@pytest.mark.parametrize("stale", [(0,), (7,), (0, 2, 4, 6)])
def test_dumps_that_an_earlier_attempt_has_left_are_not_believed(stale: tuple[int, ...], tmp_path: Path) -> None:
    # GIVEN dumps of some ranks are of another job's hang, two hours before
    old = next(case for case in cases() if case.name == "device stopped, dp8, whole")
    new = next(case for case in cases() if case.name == "host stopped, tp2-dp2-pp2, only active")
    runs = play(old.programs, old.fault), play(new.programs, new.fault)
    for rank in range(8):
        dump = (
            earlier(dump_of(runs[0], rank, old.groups, old.style), 7200.0)
            if rank in stale
            else dump_of(runs[1], rank, new.groups, new.style)
        )
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(dump, 2))
    # WHEN they are read THEN nobody is named who is not at fault, and the old ones count as missing
    (recording,) = read([tmp_path]).recordings
    assert {c.rank for i in analyze(recording) for c in i.culprits} <= set(new.culprits)
    assert set(recording.unread) == set(stale)


def test_an_empty_dump_is_old_if_its_file_is(tmp_path: Path) -> None:
    # GIVEN rank 7 has left a dump in which nothing is under way, and has died since without another one
    case = next(case for case in cases() if case.name == "device stopped, dp2-pp4, wrapped, no status")
    played = play(case.programs, case.fault)
    for rank in range(8):
        dump = dump_of(played, rank, case.groups, case.style)
        path = tmp_path / f"trace_{rank}"
        path.write_bytes(pickle.dumps({**dump, "entries": []} if rank == 7 else dump, 2))
        at_s = max((e["time_created_ns"] for e in dump["entries"]), default=0) / 1e9
        os.utime(path, (at_s, at_s - 600 if rank == 7 else at_s + 600))
    # WHEN they are read THEN it counts as missing
    (recording,) = read([tmp_path]).recordings
    assert set(recording.unread) == {7}
    assert {c.rank for i in analyze(recording) for c in i.culprits} <= set(case.culprits)


def test_numbers_of_attempts_in_paths() -> None:
    assert attempt_in("/logs/none_ab12/attempt_3/0/stderr.log") == 3
    assert attempt_in("job-attempt12.log") == 12
    assert attempt_in("/home/x/restart-1/attempt_0/1/stdout.log") == 0
    assert attempt_in("/logs/rank_3.log") is None


def test_times_of_lines() -> None:
    assert torch_time_s("[rank0]:[E102 00:00:01.500 ProcessGroupNCCL.cpp:632]") == DAY_S + 1.5
    assert torch_time_s("0: I0102 00:00:01 torch/distributed/elastic/agent/server/api.py:900]") == DAY_S + 1
    assert torchrun_time_s("2026-01-02_00:00:01") == DAY_S + 1
    for line in ("[E ProcessGroupNCCL.cpp:474]", "[E1399 00:00:00 x]", "[E101 25:00:00 x]"):
        assert torch_time_s(line) == UNTIMED


JOBSET = worded("JobSet: another attempt", host="job-worker-0") + "\n"
RAY_RESTART = (
    worded("Ray: another attempt, by its state") + "\n" + worded("Ray: all workers have started", world=8) + "\n"
)


@pytest.mark.parametrize("between", [JOBSET, RAY_RESTART, JOBSET * 3, RAY_RESTART * 2])
@pytest.mark.parametrize("is_timed", [True, False])
def test_restarts_of_ray_and_of_jobset(between: str, is_timed: bool, tmp_path: Path) -> None:
    text = whole(hung(FIRST, 5, 167)) + between + whole(hung(SECOND, 2, 40))
    intake = intake_of(tmp_path, {"job.log": text if is_timed else untimed(text)})
    assert (names_by_attempt(intake), intake.recordings[0].remarks) == ({2: [2], 1: [5]}, ())


@pytest.mark.parametrize("is_timed", [True, False])
def test_events_behind_a_log_begin_no_attempt(is_timed: bool, tmp_path: Path) -> None:
    # GIVEN a log of two attempts behind which the events of Kubernetes are printed
    text = whole(hung(FIRST, 5, 167)) + RAY_RESTART + whole(hung(SECOND, 2, 40)) + JOBSET * 2
    intake = intake_of(tmp_path, {"job.log": text if is_timed else untimed(text)})
    # THEN it is not said that the job was started once more
    assert (names_by_attempt(intake), intake.recordings[0].remarks) == ({2: [2], 1: [5]}, ())
    assert intake.attempts == 2


def test_a_restart_of_ray_behind_events_is_one(tmp_path: Path) -> None:
    text = whole(hung(FIRST, 5, 167)) + JOBSET + RAY_RESTART
    intake = intake_of(tmp_path, {"job.log": text})
    assert (names_by_attempt(intake), intake.attempts) == ({1: [5]}, 2)
    assert STARTED_AGAIN in intake.recordings[0].remarks


def test_a_container_that_is_started_again_begins_no_attempt(tmp_path: Path) -> None:
    # GIVEN a job of which one container ended, which Kubernetes started again while all others waited
    event = worded("Kubernetes: a container is started again", host="job-5") + "\n"
    said = hung(FIRST, 5, 167, silent=True)
    text = "".join(said[rank] + event * (rank == 3) for rank in said)
    # THEN what is said before and behind that is of one attempt, and it is said where the rest is
    recording, incident = found(tmp_path, {"job.log": text})
    assert [one.rank for one in incident.candidates] == [5]
    assert len(incident.victims.ranks) == 7
    (remark,) = recording.remarks
    assert remark.endswith("kubectl logs --previous job-5 -c pytorch")
