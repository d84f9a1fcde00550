"""Lines that start a job again: which of them are of one restart."""

from __future__ import annotations

import pytest

from whichrank.intake.grammar import worded
from whichrank.intake.restarts import Restarts


def restarts(*lines: str, every_s: float = -1.0) -> list[bool]:
    known = Restarts()
    return [known.see(line, number * every_s if every_s > 0 else -1.0) for number, line in enumerate(lines)]


def left(number: int) -> str:
    return worded("torchrun: another attempt", left=number)


def test_the_agents_of_all_nodes_write_the_same_number() -> None:
    assert restarts(left(3), left(3), left(3), left(2), left(2)) == [True, False, False, True, False]


def test_a_number_of_the_attempt_that_is_known_is_no_other_one() -> None:
    count = worded("torchrun: number of the attempt", attempt=1)
    environment = worded("torchrun: environment", attempt=2)
    assert restarts(left(3), count, count, environment) == [True, False, False, True]
    assert restarts("restart_count=0") == [False]


@pytest.mark.parametrize(("every_s", "found"), [(5.0, [True, False]), (600.0, [True, True]), (-1.0, [True, True])])
def test_lines_without_a_number_are_of_one_restart_if_they_are_written_at_once(
    every_s: float, found: list[bool]
) -> None:
    line = "[default] Detected 1 new nodes from group_rank=0; will restart worker group"
    assert restarts(line, line, every_s=every_s) == found


def test_a_job_that_is_queued_again_counts_anew() -> None:
    again = worded("slurmstepd: the job is queued again", job=7, host="a1")
    on_b = again.replace("ON a1", "ON b1").replace("JOB 7", "STEP 7.0")
    assert restarts(left(3), again, on_b, left(3)) == [True, True, False, True]


def test_other_lines_are_none() -> None:
    assert restarts("restart_counter=3", "TORCHELASTIC_RESTART_COUNT", "srun: DUE TO JOB REQUEUE") == [False] * 3


def test_restarts_between_which_nothing_has_a_time_are_told_apart() -> None:
    known = Restarts()
    assert [known.see(left(number), 600.0) for number in (3, 2, 1)] == [True, True, True]
    assert known.at_s[0] < known.at_s[1] < known.at_s[2] < 601


RAY = [
    worded("Ray: another attempt"), worded("Ray: another attempt, by its state"),
    worded("Ray: all workers have started", world=8),
]  # fmt: skip


@pytest.mark.parametrize("lines", [RAY, RAY[:2], RAY[:1], RAY[1:], RAY[2:]])
def test_what_ray_writes_of_one_restart_is_one(lines: list[str]) -> None:
    # GIVEN the workers that Ray starts first, and then two restarts, each with some of Ray's lines
    found = restarts(RAY[2], *lines, *lines)
    # THEN the first workers begin no other attempt, and each restart begins one
    rest = [False] * (len(lines) - 1)
    assert found == [False, True, *rest, True, *rest]


def test_a_log_of_ray_that_begins_with_a_restart() -> None:
    assert restarts(*RAY, RAY[2]) == [True, False, False, True]
    assert restarts(worded("Ray: another size, by its state"), RAY[2]) == [True, False]
    before = worded("Ray: all workers have started, before")
    assert restarts(before, before) == [False, True]
    assert restarts("[State Transition] SCHEDULING -> RUNNING.", "[State Transition] RUNNING -> FINISHED.") == [
        False, False,
    ]  # fmt: skip


def test_jobset_starts_all_jobs_again_or_one() -> None:
    event = worded("JobSet: another attempt", host="w-0")
    assert restarts(event, event, every_s=600.0) == [True, True]
    assert restarts(event.replace("RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts")) == [True]
    assert restarts(event.replace("RestartJobSet", "RestartJob"), event.replace("RestartJobSet", "FailJobSet")) == [
        False, False,
    ]  # fmt: skip
