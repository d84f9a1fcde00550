"""What fixing something would buy, of recordings on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from span_jobs import DP, PP, STEPS, job, noise

from whichrank.intake.by_kind import of_spans
from whichrank.intake.op_spans import COLUMNS, Spans
from whichrank.server import what_if as module
from whichrank.server.what_if import bill_of
from whichrank.stage.what_if import MOST_EXACT
from whichrank.surface.cli import main

SLOW = 4 * 2 + 1 * 4 * DP
"""The worker of replica 2 in stage 1."""


def slow_worker() -> Any:
    usual = noise(0)
    return lambda dp, stage, step, micro: usual(dp, stage, step, micro) * (2.0 if (dp, stage) == (2, 1) else 1.0)


def written(spans: Spans, path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    import pyarrow.parquet as pq

    columns = dict(
        zip(COLUMNS, (spans.dp, spans.stage, spans.rank, spans.step, None, spans.start_s, spans.lasted_s), strict=True)
    )
    columns["optype"] = [spans.names[what] for what in spans.what.tolist()]
    pq.write_table(pa.table(columns), path)


def test_a_slow_worker_and_what_it_costs() -> None:
    bill = bill_of(of_spans(job(slow_worker()), "table"))
    assert bill is not None
    assert (bill.steps, bill.explanation, bill.faulty_ranks, bill.slowest_ranks) == (STEPS, "ranks", (SLOW,), (SLOW,))
    assert bill.slowdown == pytest.approx(bill.step_s / bill.ideal_step_s)
    assert bill.slowest_ranks_share > 0.9
    assert len(bill.stage_shares) == 2
    assert bill.stage_shares[1] == bill.last_stage_share


def test_of_a_large_recording_some_steps_are_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = of_spans(job(slow_worker()), "table")
    assert recording.ops is not None
    passes = DP + 2 * PP + MOST_EXACT
    # GIVEN room for five of the twelve steps THEN every third one is taken, and says the same
    monkeypatch.setattr(module, "MOST_DURATIONS", 5 * passes * len(recording.ops.rank))
    bill = bill_of(recording)
    assert bill is not None
    assert (bill.steps, bill.faulty_ranks) == (4, (SLOW,))
    # AND of one that is too large for two steps nothing is said
    monkeypatch.setattr(module, "MOST_DURATIONS", passes * len(recording.ops.rank))
    assert bill_of(recording) is None


def test_analyze_says_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN a table of spans of a job with a slow worker
    written(job(slow_worker()), tmp_path / "spans.parquet")
    # WHEN it is analyzed THEN what fixing it would save stands below the incident
    assert main(["analyze", str(tmp_path)]) == 4
    out = capfd.readouterr().out
    assert f"Fixing rank {SLOW}, the slowest, would save " in out
    assert "So one slow rank explains it." in out
    # AND a program gets the same
    assert main(["analyze", "--json", str(tmp_path)]) == 4
    (bill,) = json.loads(capfd.readouterr().out)["what_if"]
    assert bill["faulty_ranks"] == [SLOW]


def test_of_a_healthy_job_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    written(job(noise(0)), tmp_path / "spans.parquet")
    assert main(["analyze", str(tmp_path)]) == 0
    nothing, step = capfd.readouterr().out.splitlines()
    assert nothing == "Nobody waits for anybody in this recording, and no rank is slow."
    assert step.startswith("A step takes ")
