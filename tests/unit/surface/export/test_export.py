"""Operations in formats that other programs open."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clockless_log import write_clockless_log
from taped_run import two_hangs
from trace_rules import broken_rules

from whichrank.model.kinds import Kind
from whichrank.surface.cli import main
from whichrank.surface.export.limit import sentence, within
from whichrank.surface.export.perfetto import trace_of
from whichrank.surface.export.tables import COLUMNS, csv_of, json_of
from whichrank.surface.export.tracks import tracks_of
from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.make import gather
from whichrank.surface.report.spans import SPAN, Spans, fitting
from whichrank.testbed.bench.dumps.cases import Layout, cases
from whichrank.testbed.bench.dumps.compare import write_case
from whichrank.testbed.bench.dumps.large import write_dumps


@pytest.fixture(name="gathered", scope="module")
def _gathered(tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    folder: Path = tmp_path_factory.mktemp("dumps")
    write_case(next(case for case in cases() if case.name == "host stopped, dp8, whole"), folder)
    return gather([folder]).gathered


@pytest.fixture(name="live", scope="module")
def _live(tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    folder = tmp_path_factory.mktemp("run")
    two_hangs(folder)
    return gather([folder]).gathered


def trace(gathered: Gathered) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(b"".join(trace_of(gathered)))
    return reported


def spans_of(*rows: tuple[int, int, float, float], kind: Kind = Kind.ALL_REDUCE, is_open: bool = False) -> Spans:
    """Rank, communicator, begin and end of operations."""
    spans = np.zeros(len(rows), SPAN)
    spans["kind"], spans["open"], spans["counter"] = kind, is_open, np.arange(len(rows))
    for span, (rank, comm, start_s, end_s) in zip(spans, rows, strict=True):
        span["rank"], span["comm"], span["start_s"], span["end_s"] = rank, comm, start_s, end_s
    return spans


def test_perfetto_has_tracks_for_each_and_arrows_through_rounds(gathered: Gathered) -> None:
    reported = trace(gathered)
    events = reported["traceEvents"]
    # THEN no rule of the format is broken
    assert broken_rules(reported) == []
    # AND each rank is a process with its communicators as tracks
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {*(f"rank {rank}" for rank in range(8)), "incidents"}
    assert len([e for e in events if e["ph"] in "XB"]) == len(gathered.spans)
    # AND arrows lead through rounds of all ranks
    by_round: dict[int, set[int]] = {}
    for event in events:
        if event["ph"] in "stf":
            by_round.setdefault(event["id"], set()).add(event["pid"])
    assert max(map(len, by_round.values())) == 8
    # AND the incident is marked
    assert next(e["name"] for e in events if e["ph"] == "i").startswith("ALERT hang: rank 0")


def test_operations_that_overlap_have_tracks_of_their_own(live: Gathered) -> None:
    # GIVEN operations of a rank that cross each other, one within another, and some that touch
    rows = [(0, 0, 1.0, 2.0), (0, 0, 1.5, 2.5), (0, 0, 1.6, 1.7), (0, 0, 2.0, 3.0), (0, 0, 2.0, 2.0), (1, 0, 1.5, 9.0)]
    gathered = dataclasses.replace(live, spans=spans_of(*rows))
    reported = trace(gathered)
    # THEN none crosses another on its track
    assert broken_rules(reported) == []
    slices = {(e["ts"], e["dur"], e["pid"]): e["tid"] for e in reported["traceEvents"] if e["ph"] == "X"}
    assert slices[0, 1_000_000, 0] == slices[1_000_000, 1_000_000, 0] != slices[500_000, 1_000_000, 0]
    # AND the other tracks are said to be of the same communicator
    names = [e["args"]["name"] for e in reported["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 0]
    assert names[:2] == ["default_pg", "default_pg (at the same time, 2)"]


def test_the_rules_find_slices_that_cross() -> None:
    def slice_(ts: int, dur: int) -> dict[str, Any]:
        return {"ph": "X", "name": "a", "pid": 0, "tid": 1, "ts": ts, "dur": dur}

    names = [{"ph": "M", "name": name, "pid": 0, "tid": 1, "args": {"name": "x"}} for name in ("thread_name",)]
    process = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "x"}}
    assert broken_rules({"traceEvents": [process, *names, slice_(0, 10), slice_(2, 3), slice_(10, 4)]}) == []
    assert broken_rules({"traceEvents": [process, *names, slice_(0, 10), slice_(5, 10)]})
    assert broken_rules({"traceEvents": [process, slice_(0, 10)]})


@pytest.mark.parametrize("seed", range(5))
def test_no_track_has_two_operations_at_a_time(seed: int) -> None:
    # GIVEN many operations at any time, some without an end
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 1000, 500)
    end = start + rng.integers(0, 50, 500)
    spans = spans_of(*((r, 0, 0.0, 0.0) for r in rng.integers(0, 3, 500).tolist()))
    never = rng.random(500) < 0.02
    track = tracks_of(spans, start, end, never)
    # THEN those on a track follow each other, and after one without an end there is none
    for key in {*zip(spans["rank"].tolist(), track.tolist(), strict=True)}:
        mine = np.flatnonzero((spans["rank"] == key[0]) & (track == key[1]))
        order = mine[np.lexsort((end[mine], start[mine]))]
        assert (start[order[1:]] >= end[order[:-1]]).all()
        assert not never[order[:-1]].any()


def test_what_has_not_ended_has_no_end(gathered: Gathered, live: Gathered) -> None:
    # GIVEN dumps of a hang THEN nobody can take its length from any format
    began = [e for e in trace(gathered)["traceEvents"] if e["ph"] == "B"]
    assert len(began) == int(gathered.spans["open"].sum()) > 0
    assert all("dur" not in event and "not known" in event["args"]["lasted"] for event in began)
    rows = list(csv.DictReader(io.StringIO(b"".join(csv_of(gathered)).decode())))
    assert {row["lasted_s"] for row in rows if row["has_ended"] == "False"} == {""}
    operations = json.loads(b"".join(json_of(gathered)))["operations"]
    assert {one["lasted_s"] for one in operations if not one["has_ended"]} == {None}
    # BUT of a run that was watched to its end it is known how long it lasted until then
    began = [e for e in trace(live)["traceEvents"] if e["ph"] == "B"]
    assert [event["args"]["lasted"] for event in began] == ["5.000 s until the end of the recording"] * 3
    rows = list(csv.DictReader(io.StringIO(b"".join(csv_of(live)).decode())))
    assert {row["lasted_s"] for row in rows if row["has_ended"] == "False"} == {"5.0"}
    assert broken_rules(trace(live)) == []


def test_a_recording_without_a_clock_has_no_times(gathered: Gathered, tmp_path: Path, capfd: Any) -> None:
    # GIVEN lines of each rank of what it has issued, without a date
    write_clockless_log(tmp_path)
    # WHEN it is written as a table THEN no operation has a time
    assert main(["export", "--format", "csv", str(tmp_path)]) == 0
    rows = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    assert {(row["start_s"], row["lasted_s"], row["blocked_s"]) for row in rows} == {("", "", "")}
    assert {row["operation"] for row in rows if row["has_ended"] == "False"} >= {"all_reduce"}
    # AND a timeline of it is refused
    assert main(["export", str(tmp_path)]) == 2
    assert "--format csv" in capfd.readouterr().err
    # AND dumps have times, but not how long a rank was blocked
    rows = list(csv.DictReader(io.StringIO(b"".join(csv_of(gathered)).decode())))
    assert "" not in {row["start_s"] for row in rows}
    assert {row["blocked_s"] for row in rows} == {""}


def test_tables_say_the_same(gathered: Gathered) -> None:
    rows = list(csv.DictReader(io.StringIO(b"".join(csv_of(gathered)).decode())))
    value = json.loads(b"".join(json_of(gathered)))
    assert len(rows) == len(value["operations"]) == len(gathered.spans)
    assert tuple(rows[0]) == COLUMNS == tuple(value["operations"][0])
    assert float(rows[5]["start_s"]) == value["operations"][5]["start_s"]
    assert value["incidents"][0]["culprits"][0]["rank"] == 0
    assert {row["has_ended"] for row in rows} == {"True", "False"}


@pytest.mark.parametrize("export", [trace_of, json_of, csv_of])
def test_an_export_is_cut_by_time_and_keeps_suspects(export: Any, live: Gathered) -> None:
    # GIVEN many operations of four ranks, of which an incident names rank 1
    rows = [(at % 4, 0, at * 1e-3, at * 1e-3 + 5e-4) for at in range(20_000)]
    last, scene = live.incidents[1:], live.scenes[1:]
    gathered = dataclasses.replace(live, spans=spans_of(*rows), seen=20_000, incidents=last, scenes=scene)
    most_bytes = 500_000
    assert sum(map(len, export(gathered))) > most_bytes
    # WHEN it may be no larger than that
    fewer, cut = within(gathered, export, most_bytes)
    # THEN it is not, and uses most of the room
    assert most_bytes / 2 < sum(map(len, export(fewer))) <= most_bytes
    # AND the latest operations are there, of the rank in question for longer
    first_s = {rank: fewer.spans["start_s"][fewer.spans["rank"] == rank].min() for rank in range(4)}
    assert max(fewer.spans["end_s"]) == max(gathered.spans["end_s"])
    assert first_s[1] < min(first_s[0], first_s[2], first_s[3]) - 0.5
    # AND it is said what was cut, and how to have it
    assert cut
    said = sentence(cut, 1)
    assert f"it has {len(fewer.spans):,} of 20,000 operations" in said
    assert "older ones of rank 1;" in said
    needed = int(said[said.index("--max-mib ") + 10 :].split()[0])
    assert within(gathered, export, needed << 20)[1] is None


def test_what_fits_is_not_cut(live: Gathered) -> None:
    assert within(live, trace_of, 1 << 30) == (live, None)


def test_suspects_do_not_take_all_the_room() -> None:
    spans = spans_of(*((at % 2, 0, float(at), at + 0.5) for at in range(100)))
    kept, since_s = fitting(spans, np.array([0]), 40)
    assert [int((kept["rank"] == rank).sum()) for rank in (0, 1)] == [20, 20]
    assert since_s == max(set(spans["end_s"].tolist()) - set(kept["end_s"].tolist()))
    assert fitting(spans, np.array([0]), 100)[1] == -np.inf


def test_the_command_says_what_it_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN operations that take more than a MiB
    monkeypatch.setattr("whichrank.testbed.bench.dumps.large.CULPRIT", 21)
    (tmp_path / "dumps").mkdir()
    write_dumps(tmp_path / "dumps", 160, Layout(tp=4, dp=4, pp=4))
    out = tmp_path / "out.json"
    # WHEN no more is allowed THEN the file is no larger, and the sentence has the number that keeps all
    assert main(["export", str(tmp_path / "dumps"), "-o", str(out), "--max-mib", "1"]) == 0
    assert out.stat().st_size <= 1 << 20
    said = capfd.readouterr().err
    assert "the file is cut to 1 MiB" in said
    needed = said[said.index("--max-mib ") + 10 :].split()[0]
    assert main(["export", str(tmp_path / "dumps"), "-o", str(out), "--force", "--max-mib", needed]) == 0
    assert "cut" not in capfd.readouterr().err
    assert broken_rules(json.loads(out.read_text())) == []


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
