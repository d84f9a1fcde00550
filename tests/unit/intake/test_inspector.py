"""Lines of NCCL's Inspector, written here as it would: it needs a GPU."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whichrank.errors import FormatError, IncompleteDataError
from whichrank.intake.inspector import is_inspector, read_inspector
from whichrank.intake.inspector_job import _iterations
from whichrank.intake.read import read
from whichrank.model.incident import Cause
from whichrank.model.telemetry import RECORD_REPORTED
from whichrank.server.analyze import analyze

RANKS = 8
WORLD = "0x9e3779b97f4a7c15"


def lines(
    rank: int, slow: int | None, form: str = "4.0", verbose: bool = True, iterations: int = 40, clock_us: float = 0.0
) -> list[dict[str, Any]]:
    """What a rank of a data-parallel job writes, that reduces three buckets an iteration.

    Args:
        rank: Whose.
        slow: The rank that computes for longer.
        form: Of the file.
        verbose: With times.
        iterations: So many.
        clock_us: What its clock is ahead.
    """
    rng = random.Random(7)  # the same for all ranks, so each knows when the others enter
    metadata = {
        "inspector_output_format_version": f"v{form}", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": 0, "hostname": f"node{rank // 4}", "pid": 4711 + rank,
    }  # fmt: skip
    header = {"id": WORLD, "rank": rank, "n_ranks": RANKS, "nnodes": 2}
    at_us, number, found = 1.7e15, 0, []
    for _ in range(iterations):
        for size, compute_us in ((1 << 20, 60_000), (1 << 22, 20_000), (1 << 21, 20_000)):
            own_us = [compute_us * (1.6 if r == slow else 1) * (1 + rng.gauss(0, 0.01)) for r in range(RANKS)]
            end_us = at_us + max(own_us) + 3000
            took_us = end_us - at_us - own_us[rank]
            perf: dict[str, Any] = {
                "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": size, "coll_exec_time_us": took_us,
                "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.75,
            }  # fmt: skip
            if verbose:
                begun = end_us - took_us + clock_us
                kernel = {"channel_id": 0, "kernel_start_ts": begun, "kernel_stop_ts": end_us + clock_us}
                perf["event_trace_ts"] = {
                    "coll_start_ts": begun - 90,
                    "coll_stop_ts": end_us,
                    "kernel_events": [kernel],
                }
            at = {"metadata": metadata | {"dump_timestamp_us": int(end_us + clock_us)}}
            found.append({"header": header} | at | {"coll_perf": perf} if form < "4.3" else {"coll_perf": perf})
            if form >= "4.3":
                found.insert(-1, {"dump_stats": {"header": header} | at})
            at_us, number = end_us, number + 1
    return found


def write(folder: Path, slow: int | None = 3, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(RANKS):
        text = "".join(json.dumps(line) + "\n" for line in lines(rank, slow, clock_us=3.6e9 * rank, **more))
        (folder / f"node{rank // 4}-pid{4711 + rank}.log").write_text(text)
    return folder


@pytest.mark.parametrize("form", ["4.0", "4.3"])
@pytest.mark.parametrize("verbose", [True, False])
def test_who_enters_late_is_named_and_nobody_in_a_healthy_job(tmp_path: Path, form: str, verbose: bool) -> None:
    (recording,) = read([write(tmp_path / "slow", form=form, verbose=verbose)]).recordings
    (incident,) = analyze(recording)
    assert ([c.rank for c in incident.culprits], incident.cause) == ([3], Cause.COMPUTE_SLOW)
    now_s, best_s = (
        next(e.value for e in incident.evidence if e.what == what)
        for what in ("iteration time", "iteration time if this rank were not slow")
    )
    assert float(str(now_s)) == pytest.approx(0.169, rel=0.05)
    assert float(str(best_s)) == pytest.approx(0.109, rel=0.05)
    (recording,) = read([write(tmp_path / "healthy", slow=None, form=form, verbose=verbose)]).recordings
    assert analyze(recording) == ()


def test_a_file_that_is_still_being_written_and_one_that_is_missing(tmp_path: Path) -> None:
    folder = write(tmp_path / "slow")
    (folder / "node0-pid4711.log").unlink()
    cut = folder / "node0-pid4712.log"
    cut.write_bytes(cut.read_bytes()[:-100])
    (recording,) = read([folder]).recordings
    assert list(recording.unread) == [0]
    (incident,) = analyze(recording)
    assert [c.rank for c in incident.culprits] == [3]


def test_without_times_several_communicators_cannot_be_put_in_order(tmp_path: Path) -> None:
    folder = write(tmp_path / "slow", verbose=False)
    for path in folder.iterdir():
        path.write_text(path.read_text() + path.read_text().replace(WORLD, "0x2"))
    with pytest.raises(IncompleteDataError, match="several communicators") as raised:
        read([folder])
    assert "NCCL_INSPECTOR_DUMP_VERBOSE=1" in raised.value.mend


def test_what_a_file_says() -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines(2, None, iterations=2)).encode()
    one = read_inspector(io.BytesIO(text))
    assert is_inspector(text[:4096])
    assert (one.host, one.pid, one.rank, one.world_size, len(one.ops)) == ("node0", 4713, 2, 8, 6)
    assert (one.names, one.comms[0].name) == (("AllReduce",), WORLD)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"header": {"id": "0x1", "rank": 0, "n_ranks": 2}}', "no collective"),
        ('{"header": {"id": "0x1", "rank": 9, "n_ranks": 2}, "coll_perf": {"coll_sn": 1}}', "no collective"),
        ('{"coll_perf": {"coll_sn": "x"}}', "cannot be read"),
        ("{" * 5000, "cannot be read"),
        (
            '{"metadata": {"hostname": "a", "pid": 1}}\n{"metadata": {"hostname": "a", "pid": 2}}',
            "of several processes",
        ),
    ],
)
def test_what_is_no_file_of_it_is_refused(line: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read_inspector(io.BytesIO(line.encode() + b"\n"))


def test_where_nothing_recurs_there_are_no_iterations() -> None:
    one = read_inspector(io.BytesIO("".join(json.dumps(line) + "\n" for line in lines(0, None)).encode()))
    reported = np.zeros(len(one.ops), RECORD_REPORTED)
    reported["row"]["count"] = np.random.default_rng(1).permutation(len(reported))
    assert len(_iterations(reported["row"])) == 0
