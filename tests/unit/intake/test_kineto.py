"""Traces of PyTorch's profiler."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from traces import TRANSFER_US, trace_of, write_traces

from whichrank.errors import FormatError
from whichrank.intake.kineto import read_trace
from whichrank.intake.kineto_job import _exposed_ns
from whichrank.intake.read import read
from whichrank.model.incident import Cause
from whichrank.server.analyze import analyze

RECORDED = Path(__file__).parents[4] / "shared" / "data" / "kineto"


def test_what_a_trace_says() -> None:
    # GIVEN a trace of two steps of three kernels each
    raw = trace_of(1, 4, [[100.0, 200.0, 50.0]] * 2, [400.0] * 2)
    trace = read_trace(io.BytesIO(json.dumps(raw).encode()))
    # THEN ranks, groups, kernels and steps are known
    assert (trace.rank, trace.world_size, trace.groups) == (1, 4, {"0": ("default_pg", (0, 1, 2, 3))})
    assert len(trace.start_ns) == 8
    assert (trace.nccl >= 0).sum() == 2
    assert (trace.said[0].collective, trace.said[0].count, trace.said[0].group) == ("allreduce", 1000, "0")
    assert [number for number, _ in trace.steps] == [10, 11, 12]
    # AND all of a kernel of NCCL that nothing else runs beside is exposed
    assert _exposed_ns(trace, (trace.nccl >= 0).nonzero()[0]).tolist() == [(50 + TRANSFER_US) * 1000] * 2


def test_what_computation_hides_is_not_exposed() -> None:
    raw = trace_of(0, 2, [[100.0]], [100.0])
    raw["traceEvents"] += [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1e9 + 90, "dur": 210, "args": {}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "copy", "ts": 1e9 + 400, "dur": 1000, "args": {}},
    ]
    trace = read_trace(io.BytesIO(json.dumps(raw).encode()))
    assert _exposed_ns(trace, (trace.nccl >= 0).nonzero()[0]).tolist() == [100_000]


def test_a_slow_rank_is_named_and_nobody_in_a_healthy_job(tmp_path: Path) -> None:
    (recording,) = read([write_traces(tmp_path / "slow", slow=3)]).recordings
    (incident,) = analyze(recording)
    assert [c.rank for c in incident.culprits] == [3]
    assert (incident.cause, incident.onset) == (Cause.COMPUTE_SLOW, None)
    (recording,) = read([write_traces(tmp_path / "healthy")]).recordings
    assert analyze(recording) == ()


def test_traces_may_be_compressed_and_some_missing(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "slow", slow=5)
    for path in sorted(folder.iterdir())[:4]:
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    next(iter(sorted(folder.iterdir()))).unlink()
    (recording,) = read([folder]).recordings
    assert [c.rank for incident in analyze(recording) for c in incident.culprits] == [5]
    assert list(recording.unread) == [0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"traceEvents": [{"ph": "X", "ts": 1', "cut"),
        ('{"traceEvents": [{"ph": 7}]}', "an event cannot be read"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": "soon"}]}', "an event cannot be read"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": null}]}', "an event cannot be read"),
        *(
            (json.dumps({"traceEvents": [{"ph": "X", "ts": 7, "dur": 7, **kind, **time}]}), "a time that is none")
            for kind in ({"cat": "kernel", "name": "a"}, {"cat": "user_annotation", "name": "ProfilerStep#3"})
            for time in ({"ts": "1e999"}, {"ts": "nan"}, {"ts": "-inf"}, {"dur": -1}, {"dur": "-1e30"}, {"dur": 1e30})
        ),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "nccl", "ts": 1e999}]}', "a time that is none"),
    ],
)
def test_damage_is_said(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        read_trace(io.BytesIO(text.encode()))


def test_times_that_are_none_cost_one_file(tmp_path: Path) -> None:
    # GIVEN traces of which one has a kernel long before all others, and one says numbers that are none
    folder = write_traces(tmp_path / "slow", slow=3)
    first, second = sorted(folder.iterdir())[:2]
    raw = json.loads(first.read_text())
    raw["traceEvents"].append({"ph": "X", "cat": "kernel", "name": "a", "ts": -1e18, "dur": 1})
    first.write_text(json.dumps(raw))
    said = {"Collective name": "allreduce", "In msg nelems": 2**70, "Seq": 2**70, "Process Group Ranks": [2**70]}
    raw = json.loads(second.read_text())
    raw["traceEvents"].append({"ph": "X", "cat": "kernel", "name": "nccl", "ts": "2e9", "dur": "1", "args": said})
    second.write_text(json.dumps(raw))
    # WHEN they are read THEN the first is left out, and of the second no more than that there was a kernel of NCCL
    (recording,) = read([folder]).recordings
    assert recording.unread == {0: "an event has a time that is none"}
    assert [c.rank for incident in analyze(recording) for c in incident.culprits] == [3]


def test_recorded_traces_are_read() -> None:
    if not RECORDED.is_dir():
        pytest.skip(f"there is no {RECORDED}")
    with gzip.open(RECORDED / "nccl_parser_config__nccl_data.json.gz") as stream:
        trace = read_trace(stream)  # type: ignore[arg-type]
    assert (trace.rank, trace.world_size, len(trace.start_ns)) == (0, 2, 3774)
    assert [number for number, _ in trace.steps] == [4, 5, 6, 7]
    # AND two ranks of 128, in two steps, say nothing: nobody is named
    pair = [RECORDED / f"trace_filter__sampled_rank-{rank}.json.gz" for rank in (0, 1)]
    (recording,) = read(pair).recordings
    assert (analyze(recording), len(recording.unread)) == ((), 126)
