"""Dumps that lie beside a log of several attempts: each is of one of them, or of none that is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attempt_logs import FIRST, RESTART, SECOND, hung, names_by_attempt, untimed, whole

from whichrank.intake.each_attempt import OF_UNKNOWN_ATTEMPT
from whichrank.intake.read import read
from whichrank.intake.recording import UNKNOWN, Intake
from whichrank.server.analyze import analyze
from whichrank.surface.cli import main

BEGAN = {FIRST: datetime(2026, 6, 1, 2, 50, tzinfo=UTC), SECOND: datetime(2026, 6, 1, 4, 50, tzinfo=UTC)}
"""When the operation began that ran out of time, by the clock of the log."""
HOUR_S = 3600.0
TWO = whole(hung(FIRST, 5, 167)) + RESTART + whole(hung(SECOND, 2, 40))


def dump(rank: int, at: str, late: int, seq: int, behind_s: float = 0.0) -> dict[str, Any]:
    """What a rank has recorded of 20 collectives, a second after each other, in the last of which all but one wait."""
    last_ns = int((BEGAN[at].timestamp() - behind_s) * 1e9)
    entries = []
    for number in range(seq - 19, seq + (rank != late)):
        at_ns, is_done = last_ns + (number - seq) * 10**9, number < seq
        entries.append({
            "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
            "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": at_ns,
            "input_sizes": [[64]], "input_dtypes": ["Float"], "output_sizes": [[64]], "output_dtypes": ["Float"],
            "state": "completed" if is_done else "scheduled", "retired": is_done, "timeout_ms": 600000,
            "time_discovered_started_ns": None, "is_p2p": False,
            "time_discovered_completed_ns": at_ns + 10**6 if is_done else None,
        })  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(8)))}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}


def job_of(folder: Path, log: str, dumps: Mapping[int, dict[str, Any]]) -> Intake:
    (folder / "job.log").write_text(log)
    for rank, one in dumps.items():
        (folder / f"dump_rank_{rank}.json").write_text(json.dumps(one))
    return read([folder])


def formats(intake: Intake) -> dict[int, list[str]]:
    """Ranks of each attempt by whose dumps it is judged."""
    recordings = {intake.number: intake.recordings, **{one.number: one.recordings for one in intake.earlier}}
    return {number: [one.format for one in those] for number, those in recordings.items()}


@pytest.mark.parametrize("behind_s", [0.0, -5 * HOUR_S, 5.5 * HOUR_S])
def test_dumps_of_the_first_attempt_are_not_taken_for_the_last_one(behind_s: float, tmp_path: Path) -> None:
    # GIVEN a log of two attempts with the times of another zone, and dumps of the first one, in which rank 5 was late
    intake = job_of(tmp_path, TWO, {rank: dump(rank, FIRST, 5, 167, behind_s) for rank in range(8)})
    # THEN the first attempt is judged by its dumps, and the last one by its log
    assert names_by_attempt(intake) == {2: [2], 1: [5]}
    (last,), ((first,),) = intake.recordings, [one.recordings for one in intake.earlier]
    assert (first.utc_offset_s, last.utc_offset_s) == (0.0, None)
    assert not first.unread


@pytest.mark.parametrize("behind_s", [0.0, -5 * HOUR_S])
def test_dumps_of_two_attempts_in_one_folder(behind_s: float, tmp_path: Path) -> None:
    # GIVEN ranks 0 to 3 have left their dump in the first attempt only, the others, with the late rank 6, in the last
    log = whole(hung(FIRST, 2, 40)) + RESTART + whole(hung(SECOND, 6, 167, silent=True))
    dumps = {rank: dump(rank, FIRST, 2, 40, behind_s) for rank in range(4)}
    dumps |= {rank: dump(rank, SECOND, 6, 167, behind_s) for rank in range(4, 8)}
    intake = job_of(tmp_path, log, dumps)
    # THEN each is used for its own attempt, also those of ranks that wait in nothing
    (last,), ((first,),) = intake.recordings, [one.recordings for one in intake.earlier]
    assert (set(last.unread), set(first.unread)) == ({0, 1, 2, 3}, {4, 5, 6, 7})
    assert names_by_attempt(intake) == {2: [6], 1: [2]}


@pytest.mark.parametrize(("at", "late", "seq", "of"), [(FIRST, 5, 167, 1), (SECOND, 2, 40, 2)])
def test_without_times_the_number_of_the_operation_tells(at: str, late: int, seq: int, of: int, tmp_path: Path) -> None:
    intake = job_of(tmp_path, untimed(TWO), {rank: dump(rank, at, late, seq) for rank in range(8)})
    assert names_by_attempt(intake) == {2: [2], 1: [5]}
    recordings = {intake.number: intake.recordings, **{one.number: one.recordings for one in intake.earlier}}
    assert {number: one.utc_offset_s for number, (one,) in recordings.items()} == {of: 0.0, 3 - of: None}


def test_a_dump_that_may_be_of_any_attempt_is_judged_apart(tmp_path: Path) -> None:
    # GIVEN dumps in which rank 7 is late in an operation of which the log says nothing
    intake = job_of(tmp_path, untimed(TWO), {rank: dump(rank, SECOND, 7, 900) for rank in range(8)})
    # THEN rank 7 is not named for any attempt, and it is said why
    assert names_by_attempt(intake) == {2: [2], UNKNOWN: [7], 1: [5]}
    assert intake.title_of(UNKNOWN) == "dumps of an attempt that is not known"
    (apart,) = intake.earlier[0].recordings
    assert OF_UNKNOWN_ATTEMPT in apart.remarks
    assert not apart.said


def test_a_dump_of_before_those_that_are_known_is_of_none(tmp_path: Path) -> None:
    # GIVEN a log without times, dumps of its last attempt, and one of rank 2 of an hour before
    dumps = {rank: dump(rank, SECOND, 2, 40) for rank in range(8)}
    dumps[2] = dump(2, FIRST, 2, 30)
    intake = job_of(tmp_path, untimed(TWO), dumps)
    assert set(intake.recordings[0].unread) == {2}
    assert UNKNOWN in [one.number for one in intake.earlier]


def test_dumps_behind_the_last_restart_are_not_of_the_attempt_before(tmp_path: Path) -> None:
    # GIVEN a log that ends with a restart, and dumps of an hour later
    log = whole(hung(FIRST, 5, 167)) + RESTART
    intake = job_of(tmp_path, log, {rank: dump(rank, SECOND, 2, 40) for rank in range(8)})
    assert names_by_attempt(intake) == {1: [5], UNKNOWN: [2]}


def test_dumps_of_a_log_of_one_attempt_are_of_it(tmp_path: Path) -> None:
    intake = job_of(tmp_path, whole(hung(SECOND, 2, 40)), {rank: dump(rank, SECOND, 2, 40) for rank in range(8)})
    assert (names_by_attempt(intake), intake.recordings[0].utc_offset_s) == ({1: [2]}, 0.0)


def test_dumps_of_an_attempt_that_is_not_known_have_a_title(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job_of(tmp_path, untimed(TWO), {rank: dump(rank, SECOND, 7, 900) for rank in range(8)})
    assert main(["analyze", str(tmp_path)]) == 3
    out, err = capfd.readouterr()
    titles = [line for line in out.splitlines() if line.endswith(":") and "ttempt" in line]
    assert titles == ["Attempt 2 of 2 (last):", "Dumps of an attempt that is not known:", "Attempt 1 of 2:"]
    assert f"dumps of an attempt that is not known: {OF_UNKNOWN_ATTEMPT}" in err
    assert main(["analyze", "--json", str(tmp_path)]) == 3
    said = json.loads(capfd.readouterr().out)
    assert [one["attempt"] for one in said["attempts"]] == [2, UNKNOWN, 1]
    assert [one["culprits"][0]["rank"] for one in said["incidents"]] == [2]


def test_they_decide_the_exit_code_where_the_last_attempt_says_nothing(tmp_path: Path) -> None:
    gloo = "RuntimeError: [a/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:43\n"
    intake = job_of(
        tmp_path, whole(hung(FIRST, 5, 167)) + RESTART + gloo, {rank: dump(rank, SECOND, 2, 40) for rank in range(8)}
    )
    assert not [i for one in intake.recordings for i in analyze(one)]
    assert main(["analyze", str(tmp_path)]) == 3
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "-o", str(page)]) == 3
    assert "<h2>Dumps of an attempt that is not known</h2>" in page.read_text()
