"""`whichrank sim`: a simulated job is kept as a run that was recorded, and says what was done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whichrank.server.replay import replay
from whichrank.surface.cli import main

PIPELINE = ["--layout", "tp2-dp2-pp2", "--microbatches", "4", "--schedule", "1f1b"]


def test_rank_that_hangs_is_named_and_the_truth_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *PIPELINE, "--seed", "1", "--output", str(tmp_path / "out"), "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    # THEN verdict and truth agree, and the recording says the same again
    (incident,) = said["incidents"]
    assert [culprit["rank"] for culprit in incident["culprits"]] == [said["truth"]["rank"]]
    assert said["truth"]["layout"] == "tp2-dp2-pp2"
    assert said["truth"]["iteration"] == incident["stage"]["iteration"]
    assert [one.id for one in replay(tmp_path / "out").incidents] == [incident["id"]]
    # AND so does the record
    assert main(["why", str(tmp_path / "out"), "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == [incident]


def test_nothing_is_said_of_a_healthy_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *PIPELINE, "--fault", "none", "--output", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("No incident.\nTruth: layout tp2-dp2-pp2, schedule 1f1b")


def test_schedule_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.csv").write_text("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n")
    arguments = ["sim", "--layout", "pp2-dp2", "--fault", "none", "--output", str(tmp_path / "out")]
    assert main([*arguments, "--schedule", str(tmp_path / "mine.csv")]) == 0
    capsys.readouterr()
    for schedule, complaint in (("none.csv", "there is no schedule"), (str(tmp_path), "there is no schedule")):
        assert main([*arguments, "--schedule", schedule]) == 2
        assert complaint in capsys.readouterr().err
    (tmp_path / "mine.csv").write_text("0F0,0B0\n0F0\n")
    assert main([*arguments, "--schedule", str(tmp_path / "mine.csv")]) == 2
    assert "there is no such schedule" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--layout", "tp9x"],
        ["--layout", "dp8192"],
        ["--layout", "dp1", "--fault", "lost"],
        ["--layout", "tp4", "--schedule", "interleaved"],
        ["--layout", "dp2", "--schedule", "/dev/zero"],
        ["--layout", "pp3", "--microbatches", "7", "--schedule", "interleaved"],
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert main(["sim", *arguments, "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") <= 3


@pytest.mark.parametrize("name", ["telemetry.tape", "incidents.jsonl"])
def test_record_of_a_real_run_is_never_replaced(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (tmp_path / name).write_bytes(b"mine")
    assert main(["sim", *PIPELINE, "--output", str(tmp_path)]) == 2
    assert "not simulated" in capsys.readouterr().err
    assert (tmp_path / name).read_bytes() == b"mine"
