"""Operations in formats that other programs open."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from whichrank.bench.dumps.cases import cases
from whichrank.bench.dumps.compare import write_case
from whichrank.surface.cli import main
from whichrank.surface.export.perfetto import trace_of
from whichrank.surface.export.tables import COLUMNS, csv_of, json_of
from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.make import gather


@pytest.fixture(name="gathered", scope="module")
def _gathered(tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    folder: Path = tmp_path_factory.mktemp("dumps")
    write_case(next(case for case in cases() if case.name == "host stopped, dp8, whole"), folder)
    return gather([folder])


def test_perfetto_has_a_lane_for_each_and_arrows_through_rounds(gathered: Gathered) -> None:
    events = json.loads(trace_of(gathered))["traceEvents"]
    # THEN each rank is a process with its communicators as lanes
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {f"rank {rank}" for rank in range(8)}
    operations = [e for e in events if e["ph"] == "X"]
    assert len(operations) == len(gathered.spans)
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in operations)
    # AND each arrow begins once, ends once, and lies within an operation of its lane
    arrows = [e for e in events if e["ph"] in "stf" and e.get("cat") == "round"]
    by_round: dict[int, list[str]] = {}
    for event in arrows:
        by_round.setdefault(event["id"], []).append(event["ph"])
    assert all(phases[0] == "s" and phases[-1] == "f" and set(phases[1:-1]) <= {"t"} for phases in by_round.values())
    assert max(len(phases) for phases in by_round.values()) == 8
    spans = {(e["pid"], e["tid"], e["ts"]): e["dur"] for e in operations}
    for event in arrows[:200]:
        inside = [at for pid, tid, at in spans if (pid, tid) == (event["pid"], event["tid"]) and at <= event["ts"]]
        assert event["ts"] <= max(inside) + spans[event["pid"], event["tid"], max(inside)] + 0.01
    # AND the incident is marked
    assert next(e["name"] for e in events if e["ph"] == "i").startswith("ALERT hang: rank 0")


def test_tables_say_the_same(gathered: Gathered) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(gathered).decode())))
    value = json.loads(json_of(gathered))
    assert len(rows) == len(value["operations"]) == len(gathered.spans)
    assert tuple(rows[0]) == COLUMNS == tuple(value["operations"][0])
    assert float(rows[5]["start_s"]) == value["operations"][5]["start_s"]
    assert value["incidents"][0]["culprits"][0]["rank"] == 0
    assert {row["has_ended"] for row in rows} == {"True", "False"}


def test_a_file_that_is_there_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN something of another
    write_case(next(case for case in cases() if case.name == "host stopped, dp8, whole"), tmp_path)
    (tmp_path / "out").write_text("precious")
    for command in ("export", "report"):
        # WHEN it is named as the output THEN it is refused
        assert main([command, str(tmp_path / "trace_0"), "-o", str(tmp_path / "out")]) == 2
        assert capfd.readouterr().err == (
            f"whichrank: there is a file '{tmp_path}/out' already\n"
            "  mend:  --force writes over it, -o FILE names another one\n"
        )
        assert (tmp_path / "out").read_text() == "precious"
    # AND written over where that is asked for
    assert main(["export", str(tmp_path / "trace_0"), "--force", "-o", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out").read_text())["traceEvents"]
