"""What `whichrank analyze` prints of one attempt of a job, and of several."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from whichrank.surface.cli import main
from whichrank.testbed.bench.logs import jobs
from whichrank.testbed.bench.logs.jobs import LAUNCHER, VERSIONS, Job


def job() -> Job:
    return Job(8, 5, VERSIONS[-1], 167, 3, "ALLREDUCE", 4096, Random(1))


def log(folder: Path, lines: list[tuple[int, str]]) -> str:
    path = folder / "job.log"
    path.write_text("".join(f"{text}\n" for _, text in lines))
    return str(path)


def test_each_attempt_has_a_title_and_the_last_one_comes_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log in which rank 6 was late in the first attempt, and rank 5 in the second
    assert main(["analyze", log(tmp_path, jobs.restarted(job()).lines)]) == 3
    out, err = capfd.readouterr()
    titles = [line for line in out.splitlines() if line.startswith(("Attempt", "ALERT"))]
    assert titles[0] == "Attempt 2 of 2 (last):"
    assert titles[1].startswith("ALERT hang: rank 5 had not entered")
    assert titles[2] == "Attempt 1 of 2:"
    assert titles[3].startswith("ALERT hang: rank 6 had not entered")
    assert "left out" not in err


def test_json_has_the_last_attempt_where_it_always_was_and_each_beside_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", "--json", log(tmp_path, jobs.restarted(job()).lines)]) == 3
    said = json.loads(capfd.readouterr().out)
    assert [one["culprits"][0]["rank"] for one in said["incidents"]] == [5]
    assert [(one["attempt"], one["title"]) for one in said["attempts"]] == [
        (2, "attempt 2 of 2 (last)"), (1, "attempt 1 of 2"),
    ]  # fmt: skip
    assert [one["incidents"][0]["culprits"][0]["rank"] for one in said["attempts"]] == [5, 6]
    ids = [one["incidents"][0]["id"] for one in said["attempts"]]
    assert len(set(ids)) == 2


def test_one_attempt_is_printed_without_a_title(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, jobs.late(job()).lines)
    assert main(["analyze", path]) == 3
    assert "ttempt" not in "".join(capfd.readouterr())
    assert main(["analyze", "--json", path]) == 3
    assert set(json.loads(capfd.readouterr().out)) == {"incidents", "intake", "what_if"}


def test_the_exit_code_is_of_the_last_attempt(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN a log whose last attempt has an error of Gloo that names nobody
    gloo = "RuntimeError: [a/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:43"
    again = jobs.worded("torchrun: another attempt", left=2)
    assert main(["analyze", log(tmp_path, [*jobs.late(job()).lines, (LAUNCHER, again), (0, gloo)])]) == 5
    out, err = capfd.readouterr()
    assert out.startswith("Attempt 2 of 2 (last):\nThis recording does not show which rank waits for which.")
    assert "Attempt 1 of 2:\nALERT hang: rank 5" in out
    assert "the peer at 10.0.0.3 closed its connection" in err


def test_a_job_that_was_started_again_at_the_end_of_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    again = jobs.worded("torchrun: another attempt", left=2)
    assert main(["analyze", log(tmp_path, [*jobs.late(job()).lines, (LAUNCHER, again)])]) == 3
    out, err = capfd.readouterr()
    assert out.startswith("Attempt 1 of 2:\nALERT hang: rank 5")
    assert "the job was started again after this" in err
