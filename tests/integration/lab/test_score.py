"""`whichrank lab score`: three scenarios, once; it goes on where it was, and every method goes through a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from whichrank.surface.cli import main
from whichrank.testbed.bench.methods.campaign import OURS, Run, done_in
from whichrank.testbed.bench.methods.score import METHODS
from whichrank.testbed.bench.methods.tables import verdict_of
from whichrank.testbed.lab.network import can_be_here
from whichrank.testbed.lab.scenarios import chosen

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not can_be_here(), reason="network namespaces need root, ip and tc"),
]

SCORE = [sys.executable, "-m", "whichrank", "lab", "score"]
FEW = ["stop", "wrong-shape", "none"]
"""Scenarios that a machine with other work decides too; others may be reported late there, or nobody named."""


def test_scenarios_are_run_scored_and_gone_on_with(tmp_path: Path) -> None:
    results, kept, picture = tmp_path / "results.jsonl", tmp_path / "kept", tmp_path / "score.svg"
    command = [*SCORE, "--seeds", "1", "--results", str(results), "--keep", str(kept)]
    # GIVEN one scenario has been run, and each method has heard it
    heard = [*command, "--scenarios", "stop", "--methods", ",".join(METHODS), "--launcher", "preloaded"]
    assert subprocess.run(heard, check=False, capture_output=True).returncode in (0, 1)
    (first,) = done_in(results).values()
    assert sorted(first.outcomes) == sorted([*METHODS, OURS])
    # WHEN the others are run for whichrank alone
    command += ["--scenarios", ",".join(FEW), "--methods", "none", "--launcher", "preloaded"]
    done = subprocess.run([*command, "--picture", str(picture)], check=False, capture_output=True, text=True)
    # THEN each was run once
    assert done.returncode in (0, 1), done.stderr
    runs = {run.scenario: run for run in done_in(results).values()}
    assert sorted(runs) == sorted(FEW), done.stderr
    for run in runs.values():
        assert OURS in run.outcomes
        assert run.launcher == "preloaded"
        assert verdict_of(run, OURS) not in ("wrong_name", "wrong_cause", "false_alarm"), run
    assert {run.verdict for run in runs.values()} <= {"right", "late"}
    assert "right" in {runs["stop"].outcomes[method].verdict for method in METHODS}
    # AND the tables and the picture are made of them
    assert "| whichrank |" in done.stdout
    assert all(f"| {name} |" in done.stdout for name in FEW)
    assert picture.read_text().startswith("<svg")
    # WHEN it is asked for again THEN nothing is run, and the same is said
    again = subprocess.run([*command, "--json"], check=True, capture_output=True) if done.returncode == 0 else None
    if again:
        assert msgspec.json.decode(again.stdout, type=list[Run]) == [runs[s.name] for s in chosen(FEW)]
    # WHEN methods are to go through what was kept again THEN they say the same of what they have heard
    done = subprocess.run([*heard, "--again", "--json"], check=False, capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    (stop,) = msgspec.json.decode(done.stdout, type=list[Run])
    assert {name: stop.outcomes[name].verdict for name in METHODS} == {n: first.outcomes[n].verdict for n in METHODS}
    assert len(stop.incidents) == len(first.incidents)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--again"], "--keep FOLDER"),
        (["--scenarios", "stpo"], "there is no scenario 'stpo'"),
        (["--scenarios", ""], "--scenarios names none"),
        (["--again", "--keep", "kept", "--results", "none.jsonl"], "no run of these that methods have gone through"),
        (["--methods", "guess"], "there is no method 'guess'"),
        (["--seeds", "0"], "--seeds"),
    ],
)
def test_what_cannot_be_scored_is_said_before_anything_is_run(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "score", *options]) == 2
    assert said in capfd.readouterr().err


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"scenario": 1}\n')
    command = [*SCORE, "--scenarios", "stop", "--results", str(tmp_path / "other.jsonl")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, "line 1" in done.stderr, "Traceback" in done.stderr) == (1, True, False), done.stderr
