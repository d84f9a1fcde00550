"""Attempts of one job whose files lie together: the verdict is about the last one."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from whichrank.errors import UsageError
from whichrank.intake.attempts import attempt_in, last_in_paths
from whichrank.intake.log_time import UNTIMED, torch_time_s, torchrun_time_s
from whichrank.intake.read import OF_LAST_ATTEMPT, read
from whichrank.intake.recording import Recording
from whichrank.model.incident import Incident
from whichrank.server.analyze import analyze
from whichrank.testbed.bench.dumps.cases import cases
from whichrank.testbed.bench.dumps.played import dump_of, play

FIRST, SECOND = "601 03:00:00.1", "601 05:00:00.1"
RESTART = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
DAY_S = 86400.0


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


def found(folder: Path, files: dict[str, str]) -> tuple[Recording, Incident]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (recording,) = read([folder]).recordings
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
    # WHEN they are read THEN the verdict is about the second one, and it is said that there is another
    recording, incident = found(tmp_path, files)
    assert [c.rank for c in incident.culprits or incident.candidates] == [2]
    assert bool(incident.culprits) != silent
    assert incident.stage
    assert incident.stage.op == f"all_reduce #{after} on default_pg"
    assert recording.remarks == (OF_LAST_ATTEMPT,)


@pytest.mark.parametrize(
    ("between", "is_timed"), [("", True), (RESTART, True), ("", False), ("TORCHELASTIC_RESTART_COUNT=1\n", False)]
)
def test_one_log_of_two_attempts(between: str, is_timed: bool, tmp_path: Path) -> None:
    text = whole(hung(FIRST, 5, 167)) + between + whole(hung(SECOND, 2, 40))
    if not is_timed:
        text = text.replace(f"[E{FIRST} ", "[E ").replace(f"[E{SECOND} ", "[E ")
    recording, incident = found(tmp_path, {"job.log": text})
    assert ([c.rank for c in incident.culprits], recording.remarks) == ([2], (OF_LAST_ATTEMPT,))


def test_each_rank_has_a_log_of_both(tmp_path: Path) -> None:
    first, second = hung(FIRST, 5, 167), hung(SECOND, 2, 40, silent=True)
    _, incident = found(tmp_path, {f"rank{rank}.log": first[rank] + second[rank] for rank in range(8)})
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [2])


def test_folders_as_torchrun_makes_them(tmp_path: Path) -> None:
    logs = zip((2, 10), (hung(FIRST, 5, 167), hung(FIRST, 2, 40, silent=True)), strict=True)
    files = {f"none_x/attempt_{n}/{rank}/stderr.log": text for n, said in logs for rank, text in said.items()}
    recording, incident = found(tmp_path, files)
    assert (incident.culprits, [c.rank for c in incident.candidates]) == ((), [2])
    assert recording.remarks == (OF_LAST_ATTEMPT,)


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


def test_logs_without_times_or_order_are_refused(tmp_path: Path) -> None:
    untimed = [whole(hung(FIRST, late, seq)).replace(f"[E{FIRST} ", "[E ") for late, seq in ((5, 167), (2, 40))]
    with pytest.raises(UsageError, match="several attempts, and nothing says which one is the last"):
        found(tmp_path, {"a.log": untimed[0], "b.log": untimed[1]})


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
    assert last_in_paths(["attempt_2/a", "attempt_10/a", "launcher.log"]) == 10
    assert last_in_paths(["attempt_1/a", "attempt_1/b", "launcher.log"]) is None


def test_times_of_lines() -> None:
    assert torch_time_s("[rank0]:[E102 00:00:01.500 ProcessGroupNCCL.cpp:632]") == DAY_S + 1.5
    assert torch_time_s("0: I0102 00:00:01 torch/distributed/elastic/agent/server/api.py:900]") == DAY_S + 1
    assert torchrun_time_s("2026-01-02_00:00:01") == DAY_S + 1
    for line in ("[E ProcessGroupNCCL.cpp:474]", "[E1399 00:00:00 x]", "[E101 25:00:00 x]"):
        assert torch_time_s(line) == UNTIMED
