"""Tables of spans of a pipelined job."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from span_jobs import DP, MICROBATCHES, NAMES, STEPS, job, noise

from whichrank.errors import FormatError
from whichrank.intake.by_kind import of_spans
from whichrank.intake.op_spans import COLUMNS, UNTRACED, Spans, batches_of, read_parquet
from whichrank.intake.op_spans import _with_barriers as with_barriers
from whichrank.intake.read import read
from whichrank.model.incident import Cause, Incident
from whichrank.server.analyze import analyze

RECORDED = Path(__file__).parents[4] / "shared" / "data" / "what_if_AR"


def found_in(spans: Spans) -> tuple[Incident, ...]:
    return analyze(of_spans(spans, "table"))


def test_a_slow_worker_is_named_with_its_excess() -> None:
    usual = noise(1)
    (incident,) = found_in(
        job(lambda dp, stage, step, micro: usual(dp, stage, step, micro) * (1.8 if (dp, stage) == (2, 1) else 1))
    )
    assert [c.rank for c in incident.culprits] == [4 * 2 + 4 * DP]
    assert incident.cause == Cause.COMPUTE_SLOW
    facts = {fact.what: fact.value for fact in incident.evidence}
    assert facts["iteration time if this rank were not slow"] < 0.8 * facts["iteration time"]  # type: ignore[operator]


def test_a_healthy_job_says_nothing() -> None:
    assert found_in(job(noise(2))) == ()


def test_microbatches_that_differ_are_an_imbalance() -> None:
    # GIVEN rows that are longer now here and now there, alike on both stages
    rng = np.random.default_rng(3)
    length = rng.uniform(0.5, 1.5, (DP, STEPS, MICROBATCHES))
    (incident,) = found_in(job(lambda dp, stage, step, micro: 0.1 * float(length[dp, step, micro])))
    assert (incident.cause, incident.culprits, incident.severity) == (Cause.IMBALANCE, (), "notice")


def test_a_pause_of_all_replicas_is_a_barrier_and_one_alone_is_not() -> None:
    # GIVEN a pause before the gradients on all replicas of the last stage, another one on one replica of the first
    spans = job(noise(4))
    late_s = spans.start_s.copy()
    grads = spans.what == NAMES.index("grads-reduce-scatter")
    late_s[grads & (spans.stage == 1)] += 0.5
    late_s[grads & (spans.stage == 0) & (spans.dp == 1)] += 0.5
    # WHEN untraced barriers are looked for THEN only the first is one
    found = with_barriers(dataclasses.replace(spans, start_s=late_s))
    barriers = found.what == found.names.index(UNTRACED)
    assert barriers.sum() == DP * STEPS
    assert set(found.stage[barriers].tolist()) == {1}
    assert found.lasted_s[barriers] == pytest.approx(0.5, abs=1e-6)


def test_batches_are_of_the_workers() -> None:
    batches, now_s = batches_of(job(noise(5)))
    assert [int(batch.rank_rows()["rank"][0]) for batch in batches] == sorted(
        4 * d + 16 * s for d in range(4) for s in range(2)
    )
    assert now_s > 0


def test_other_tables_are_refused() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    import pyarrow.parquet as pq

    def written(columns: dict[str, list[Any]]) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    good: dict[str, list[Any]] = {name: [1] for name in COLUMNS} | {
        "optype": ["gc"],
        "start_ts": [0.0],
        "duration": [1.0],
    }
    assert read_parquet(written(good)).workers() == [(1, 1, 1)]
    for change, words in (
        ({"optype": None}, "without the column optype"), ({"duration": [float("nan")]}, "times that are none"),
        ({"duration": [-1.0]}, "times that are none"), ({"rank": [-5]}, "ranks that are none"),
    ):  # fmt: skip
        columns = {name: value for name, value in (good | change).items() if value is not None}
        with pytest.raises(FormatError, match=words):
            read_parquet(written(columns))
    with pytest.raises(FormatError, match="cannot be read"):
        read_parquet(written(good)[:-9])


def test_the_recorded_job_has_one_slow_worker() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    if not RECORDED.is_dir():
        pytest.skip(f"there is no {RECORDED}")
    (recording,) = read([RECORDED]).recordings
    (incident,) = analyze(recording)
    assert ([c.rank for c in incident.culprits], incident.cause) == ([0], Cause.COMPUTE_SLOW)
    facts = {fact.what: fact.value for fact in incident.evidence}
    # What fixing it saves is what others have published of this job: 1.97 times as long as it should take.
    assert facts["iteration time"] / facts["iteration time if this rank were not slow"] == pytest.approx(1.97, rel=0.05)  # type: ignore[operator]
