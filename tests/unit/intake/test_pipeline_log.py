"""Logs of a pipeline's computations: what stragglers cost, uneven stages, and no stage blamed for waiting."""

from __future__ import annotations

import io
import random
import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pipeline_logs import logs_of

from whichrank.errors import FormatError
from whichrank.intake.pipeline_log import is_pipeline_log, read_pipeline_log, spans_of
from whichrank.intake.read import read
from whichrank.intake.recording import Recording
from whichrank.model.incident import Cause
from whichrank.server.analyze import analyze
from whichrank.server.what_if import bill_of


def written(folder: Path, texts: list[str]) -> Recording:
    for stage, text in enumerate(texts):
        (folder / f"GPU{stage}_rank{stage}_1F1B.log").write_text(text)
    (recording,) = read([folder]).recordings
    return recording


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_a_healthy_pipeline_says_nothing(stages: int, absolute: bool, new: bool, tmp_path: Path) -> None:
    recording = written(tmp_path, logs_of(random.Random(1), lambda *_: 1.0, stages=stages, absolute=absolute, new=new))
    assert analyze(recording) == ()
    bill = bill_of(recording)
    assert bill is not None
    assert bill.slowdown == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("slow", range(4))
@pytest.mark.parametrize("absolute", [False, True])
def test_a_stage_that_computes_for_longer_is_the_one_that_costs(slow: int, absolute: bool, tmp_path: Path) -> None:
    texts = logs_of(random.Random(2), lambda stage, _: 1.8 if stage == slow else 1.0, absolute=absolute)
    recording = written(tmp_path, texts)
    for incident in analyze(recording):
        assert incident.cause == Cause.IMBALANCE or {one.rank for one in incident.culprits} == {slow}
    bill = bill_of(recording)
    assert bill is not None
    assert bill.slowest_ranks == (slow,)
    assert bill.slowdown > 1.2


@pytest.mark.parametrize("first", range(3))
def test_no_stage_is_blamed_for_a_slow_link(first: int, tmp_path: Path) -> None:
    recording = written(tmp_path, logs_of(random.Random(3), lambda *_: 1.0, link={(first, first + 1): 60.0}))
    assert not any(incident.culprits or incident.candidates for incident in analyze(recording))


def test_messages_stand_where_a_stage_waits_for_one() -> None:
    """GIVEN a pipeline of two stages THEN the spans of each follow each other, from its first to its last."""
    texts = logs_of(random.Random(4), lambda *_: 1.0, stages=2, micro=4, steps=2)
    spans = spans_of([read_pipeline_log(io.BytesIO(text.encode())) for text in texts])
    assert spans is not None
    for stage in range(2):
        mine = (spans.rank == stage) & (spans.step == 1)
        ends = spans.start_s[mine] + spans.lasted_s[mine]
        gaps = [b - a for a, b in pairwise(sorted([*spans.start_s[mine].tolist(), *ends.tolist()]))]
        assert sum(gap for gap in gaps) == pytest.approx(spans.lasted_s[mine].sum(), rel=0.01)
    names = {spans.names[what] for what in spans.what[spans.rank == 0].tolist()}
    assert names == {"forward-compute", "forward-send", "backward-recv", "backward-compute"}


def test_damaged_lines_cost_the_iteration_in_which_they_are(tmp_path: Path) -> None:
    texts = logs_of(random.Random(5), lambda *_: 1.0)
    lines = texts[1].split("\n")
    for at in (10, 100, 300):
        lines[at] = lines[at][: len(lines[at]) // 3]
    recording = written(tmp_path, [texts[0], "\n".join(lines), *texts[2:]])
    assert analyze(recording) == ()
    assert bill_of(recording) is not None


@pytest.mark.parametrize("lacking", [0, 1])
def test_without_a_stage_nothing_is_said(lacking: int, tmp_path: Path) -> None:
    texts = logs_of(random.Random(6), lambda stage, _: 2.0 if stage == 2 else 1.0)
    del texts[lacking]
    recording = written(tmp_path, texts)
    assert analyze(recording) == ()
    assert "give the logs of all stages" in recording.left_open


def test_logs_of_two_runs_are_not_mixed(tmp_path: Path) -> None:
    texts = logs_of(random.Random(7), lambda *_: 1.0)
    for stage, text in enumerate(texts):
        (tmp_path / f"GPU{stage}_rank{stage}_CPU.log").write_text(text.replace(".0 (ms)", ".5 (ms)"))
    recording = written(tmp_path, logs_of(random.Random(8), lambda stage, _: 2.0 if stage == 1 else 1.0))
    assert analyze(recording) == ()
    assert "of one run" in recording.left_open


def test_other_texts_are_none(tmp_path: Path) -> None:
    line = b"[RANK1] F @ 29.21 (ms) to 61.05 (ms), cudaEventElapsed = 31.79 (ms)\n"
    assert is_pipeline_log(line * 3)
    assert not is_pipeline_log(b"It writes lines such as\n" + line)
    assert not is_pipeline_log(b"[rank1] F @ 0x7f to 3\n" * 9)
    assert not is_pipeline_log(b"[rank1]: Traceback (most recent call last)\n" * 9)
    with pytest.raises(FormatError, match="no span"):
        read_pipeline_log(io.BytesIO(b"[RANK1] Iteration 1\n"))
