"""`whichrank demo`: what it says of verdict and truth, and what it leaves behind."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from incident_cases import ONSET, not_entered

from whichrank.model.incident import Incident, encode_incident
from whichrank.surface.cli import main
from whichrank.surface.trial.words import agreement, cost_reported, listed, truth_reported, wrapped
from whichrank.testbed.bench import setup, trial
from whichrank.testbed.bench.judge import Verdict
from whichrank.testbed.demo.plan import Truth

STOPPED = Truth(
    fault="stop", variant="between-ops", kind="outside", effect="hang", culprits=(5,), candidates=(),
    cause="not_entered", causes=("not_entered",), reason="stopped", reasons=("stopped",), hard=True,
    layout="tp2-pp2-dp2", iteration=14, at_utc=ONSET.isoformat(), at_monotonic_ns=1,
)  # fmt: skip


def result_of(verdict: Verdict, truth: Truth | None = STOPPED, **changes: Any) -> setup.Result:
    fields: dict[str, Any] = {
        "fault": "stop", "seed": 0, "setup": {}, "truth": asdict(truth) if truth else None, "incidents": [],
        "verdict": verdict, "agree": verdict == "right", "reason_agrees": True, "seconds_to_alert": 1.52,
        "seconds_to_located": 1.52, "log": "job.log",
    }  # fmt: skip
    return setup.Result(**{**fields, **changes})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where demos put their folders; no job is started."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def ends_with(monkeypatch: pytest.MonkeyPatch, result: setup.Result | BaseException, *incidents: Incident) -> None:
    def run(self: trial.Trial) -> setup.Result:
        lines = b"".join(encode_incident(incident) + b"\n" for incident in incidents)
        (self.folder / "incidents.jsonl").write_bytes(lines)
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(trial.Trial, "run", run)


def test_folder_goes_when_they_agree(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ends_with(monkeypatch, result_of("right"), not_entered(status="final", next=("kill -CONT 4211",)))
    assert main(["demo"]) == 0
    out, err = capfd.readouterr()
    # THEN verdict and truth stand there in words, and nobody is sent to a process that the demo has ended
    assert "  ALERT hang: rank 5 (node node-a) had not entered the all-reduce on dp" in out
    assert "kill -CONT" not in out
    assert "It was done to rank 5, in iteration 14 of a tp2-pp2-dp2 job." in out
    assert out.endswith("\nThey agree. The alert came 1.52 s after the fault.\n")
    assert "kept" not in err
    assert list(place.iterdir()) == []
    # AND as JSON no file is named that is gone
    assert main(["demo", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["log"] == ""
    assert list(place.iterdir()) == []


def test_folder_is_kept_and_named_when_they_do_not(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ends_with(monkeypatch, result_of("missed", seconds_to_alert=None))
    assert main(["demo"]) == 1
    out, err = capfd.readouterr()
    assert "They do not agree: there was no alert." in out
    (kept,) = place.iterdir()
    assert f"kept in {kept}\n" in err


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_folder_goes_by_ctrl_c(place: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException, code: int) -> None:
    ends_with(monkeypatch, end)
    if isinstance(end, SystemExit):
        with pytest.raises(SystemExit):
            main(["demo"])
    else:
        assert main(["demo"]) == code
    assert list(place.iterdir()) == []


def test_faults_are_listed_by_kind() -> None:
    faults = setup.known_faults()
    text = listed(faults)
    assert re.findall(r"^(\S.*):$", text, re.MULTILINE) == [
        "From outside, to the process of a rank",
        "In the program of a rank",
        "Healthy jobs, for which no alert is right",
    ]
    assert set(re.findall(r"^  (\S+) ", text, re.MULTILINE)) == set(faults)


def test_truth_of_a_healthy_job_blames_nobody() -> None:
    healthy = {**asdict(STOPPED), "fault": "none", "kind": "healthy", "culprits": ()}
    said = truth_reported(healthy, setup.known_faults())
    assert said == "A healthy job, 'none': An undisturbed job. Nobody is at fault. Layout tp2-pp2-dp2."


def test_truth_says_what_was_done_another_way() -> None:
    killed = {**asdict(STOPPED), "fault": "oom-kill", "variant": "cgroup (simulated: no writable memory cgroup)"}
    said = truth_reported(killed, setup.known_faults())
    assert "into which the rank was moved. It was simulated: no writable memory cgroup. It was done to rank 5" in said
    assert "simulated" not in truth_reported({**killed, "variant": "cgroup"}, setup.known_faults())


@pytest.mark.parametrize(
    ("truth", "whom"),
    [
        ({"culprits": (5,)}, "rank 5"),
        ({"culprits": ()}, "no rank alone"),
        ({"culprits": (), "sources": (2, 3), "pairs": ((1, 2),)}, "what ranks 2 and 3 send to other nodes"),
        ({"culprits": (5,), "sources": (2,)}, "rank 5, and to what rank 2 sends to other nodes"),
        ({"culprits": (), "targets": (2, 3)}, "what other nodes send to ranks 2 and 3"),
        ({"culprits": (), "pairs": ((1, 2), (3, 4))}, "what goes between ranks 1 and 2, 3 and 4"),
        ({"culprits": (), "pairs": [(0, n) for n in range(1, 7)]},
         "what goes between ranks 0 and 1, 0 and 2, 0 and 3, 0 and 4, and 2 more pairs"),
    ],
)  # fmt: skip
def test_truth_says_to_whom_it_was_done(truth: dict[str, object], whom: str) -> None:
    said = truth_reported({**asdict(STOPPED), **truth}, setup.known_faults())
    assert f" It was done to {whom}, in iteration" in said


def slowed(fault: str, variant: str, effect: str = "slow", culprits: tuple[int, ...] = (3,)) -> Truth:
    return replace(STOPPED, fault=fault, variant=variant, effect=effect, culprits=culprits)


@pytest.mark.parametrize(
    ("truth", "measured", "expected"),
    [
        (slowed("slow-compute", "x1.1"), {"longer": 0.021, "too_small": True},
         "Rank 3 computes 1.1 times as long; it made iterations 2.1 % longer. That is too small to report: 5 % is the"
         " least."),
        (slowed("slow-compute", "x5"), {"longer": 1.7}, "Rank 3 computes 5 times as long; it made iterations 170 %"
         " longer."),
        (slowed("slow-compute", "x1.1"), {"longer": -0.2, "too_small": True},
         "Rank 3 computes 1.1 times as long; iterations took as long as before. That is too small to report: 5 % is the"
         " least."),
        (slowed("slow-start", "x1.1"), {"longer_at_most": 0.042, "too_small": True},
         "Rank 3 computes 1.1 times as long; it makes iterations at most 4.2 % longer. That is too small to report: 5 %"
         " is the least."),
        (slowed("slow-every-rank", "x1.5", "slow-all", ()), {"longer": 0.1, "too_small": True},
         "Every rank computes 1.5 times as long; it made iterations 10 % longer. That is too small to report: 15 % is"
         " the least."),
        (slowed("slow-compute", "x1.1"), {"longer": 0.24, "longer_at_most": 0.046, "too_small": True},
         "Rank 3 computes 1.1 times as long; it makes iterations at most 4.6 % longer. That is too small to report: 5 %"
         " is the least."),
        (slowed("slow-compute", "x1.2"), {"longer": -0.1, "too_small": True, "verdict": "right"},
         "Rank 3 computes 1.2 times as long; iterations took as long as before."),
        (slowed("slow-data", "x1.2"), {"longer": 0.2}, "Rank 3 waits 50 ms for the next batch; it made iterations 20 %"
         " longer."),
        (slowed("gc-storm", "40k"), {}, "Rank 3 makes 40,000 objects in each iteration."),
        (slowed("two-slow", "x2", culprits=(3, 5)), {}, "The slower one of ranks 3 and 5 computes 2 times as long."),
        (slowed("slow-link", "50mbit", "slow-link", ()), {}, "The rate is limited to 50mbit."),
        (STOPPED, {}, ""),
        (replace(STOPPED, kind="healthy"), {"longer": 0.0}, ""),
    ],
)  # fmt: skip
def test_truth_says_how_much_and_what_it_costs(truth: Truth, measured: dict[str, Any], expected: str) -> None:
    assert cost_reported(result_of(**({"verdict": "missed", "truth": truth} | measured))) == expected


def test_a_fault_that_is_too_small_agrees_with_silence(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a rank computes 1.1 times as long, and iterations take 2 % longer
    small = {"longer": 0.02, "too_small": True, "seconds_to_alert": None}
    ends_with(monkeypatch, result_of("missed", slowed("slow-compute", "x1.1"), agree=True, **small))
    # WHEN the demo ends without a report THEN that agrees with the truth
    assert main(["demo"]) == 0
    out, _ = capfd.readouterr()
    assert "it made iterations 2 % longer. That is too small to report: 5 % is the least." in out
    assert out.endswith("\nThey agree: no alert, and what was done is too small to report.\n")


@pytest.mark.parametrize("verdict", Verdict.__args__)  # type: ignore[attr-defined]
def test_every_verdict_has_plain_words(verdict: Verdict) -> None:
    said = agreement(result_of(verdict))
    assert "_" not in said
    assert said.startswith("They agree." if verdict == "right" else "They do not agree: ")


def test_paragraph_is_wrapped_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(["word"] * 100)
    monkeypatch.setenv("COLUMNS", "60")
    lines = wrapped(text, to_terminal=True).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("  word") for line in lines)
    assert wrapped(text, to_terminal=False) == f"  {text}"
    monkeypatch.setenv("COLUMNS", "3")
    assert max(map(len, wrapped(text, to_terminal=True).splitlines())) <= 42
