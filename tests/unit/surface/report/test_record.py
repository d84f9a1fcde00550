"""Reports and exports of runs without a recording: what was reported is shown, and what is missing is said."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from taped_run import two_hangs

from whichrank.surface.cli import main
from whichrank.wire.tape import FILE_NAME

RECORD = "`whichrank run --record` keeps them next time"


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Path:
    two_hangs(tmp_path / "run", is_recorded=False)
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["", "incidents.jsonl"])
def test_a_page_has_what_was_reported(name: str, run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN a run that was watched and not recorded WHEN a page is made of its folder or of its file
    assert main(["report", str(run / name), "-o", str(tmp_path / "page.html")]) == 3
    # THEN it has both incidents, says what is missing and how to have it, and so does the command
    page = (tmp_path / "page.html").read_text()
    assert page.count("<article") == 2
    assert "This run was not recorded" in page
    assert "<code>whichrank run --record</code> keeps them next time" in page
    assert "4 ranks" in page
    assert RECORD in capfd.readouterr().err


def test_exports_have_what_was_reported(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # WHEN it is exported THEN incidents are there
    assert main(["export", str(run), "--format", "json"]) == 0
    reported = capfd.readouterr()
    value = json.loads(reported.out)
    assert [len(value["incidents"]), value["operations"]] == [2, []]
    assert RECORD in value["missing"]
    assert RECORD in reported.err
    # AND in a trace they are marks, at their times
    assert main(["export", str(run)]) == 0
    marks = [event for event in json.loads(capfd.readouterr().out)["traceEvents"] if event["ph"] == "i"]
    assert [mark["ts"] for mark in marks] == [0, 8_000_000]
    # AND a table of operations has its head
    assert main(["export", str(run), "--format", "csv"]) == 0
    assert len(list(csv.reader(io.StringIO(capfd.readouterr().out)))) == 1


def test_lines_that_cannot_be_read_are_said(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN a record of which two lines are damaged
    with (run / "incidents.jsonl").open("a") as record:
        record.write('{"schema": 7}\nnoise\n')
    # WHEN a page or a table is made of it THEN the command says so, and where to read why
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 3
    assert "a part of incidents.jsonl could not be read: 2 lines are no incident" in capfd.readouterr().err
    assert main(["export", str(run), "--format", "csv"]) == 5
    assert "2 lines are no incident" in capfd.readouterr().err


def test_a_recording_that_cannot_be_read_is_no_end(run: Path, tmp_path: Path) -> None:
    # GIVEN a run whose recording is of another format
    (run / FILE_NAME).write_bytes(b"WRTAPE\xff\x00")
    # THEN what was reported is shown, and why there is nothing else
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 3
    page = (tmp_path / "page.html").read_text()
    assert page.count("<article") == 2
    assert "Its recording cannot be read: the tape has format 255" in page


def test_a_recording_that_was_cut_says_so(tmp_path: Path) -> None:
    two_hangs(tmp_path / "run")
    tape = tmp_path / "run" / FILE_NAME
    tape.write_bytes(tape.read_bytes()[:-5])
    main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")])
    assert "The recording ends within an entry" in (tmp_path / "page.html").read_text()


def test_several_runs_are_refused(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    two_hangs(tmp_path / "other", is_recorded=False)
    assert main(["report", str(run), str(tmp_path / "other"), "-o", str(tmp_path / "page.html")]) == 2
    assert "these are several runs" in capfd.readouterr().err


def test_without_a_path_it_is_the_newest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a folder without runs THEN that is said
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHICHRANK_SHM", str(tmp_path / "shm"))
    assert main(["report"]) == 2
    assert "no run was found here" in capfd.readouterr().err
    # AND of one with a run it is that
    two_hangs(tmp_path / "whichrank-out" / "a")
    assert main(["report"]) == 3
    assert (tmp_path / "report.html").read_text().count("<article") == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"ranks":[', '"ranks":[9223372036854775808,'),
        ('"culprits":[{"rank":', '"culprits":[{"rank":9223372036854775808'),
        ('"onset":"2', '"onset":"9999-12-31T23:59:59-14:00","_":"'),
    ],
)
def test_numbers_that_no_job_has_lose_one_incident_only(
    old: str, new: str, run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a record of two incidents, one with a rank or a time that cannot be
    record = run / "incidents.jsonl"
    good, bad = record.read_text().splitlines()[-1], record.read_text().splitlines()[0]
    record.write_text(f"{good}\n{bad.replace(old, new, 1)}\n")
    # WHEN a page is made of it THEN the other one is on it, and the line is said to be damaged
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 3
    assert (tmp_path / "page.html").read_text().count("<article") == 1
    assert "could not be read" in capfd.readouterr().err


def test_a_record_that_cannot_be_read_is_no_healthy_job(run: Path, tmp_path: Path) -> None:
    # GIVEN a record of which nothing can be read
    (run / "incidents.jsonl").write_text('{"schema":"whichrank.incident/1","rank":1}\n')
    # WHEN a page is made of it THEN it does not say that there was no incident
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 5
    page = (tmp_path / "page.html").read_text()
    assert "whether there was an incident is not known" in page
    assert not re.search("No incident|· no incident|0 incidents", page)


@pytest.mark.parametrize("command", ["report", "export"])
@pytest.mark.parametrize("name", ["incidents.jsonl", "link"])
def test_what_is_read_is_not_written_over(
    command: str, name: str, run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a run, and a link to its record
    (tmp_path / "link").symlink_to(run / "incidents.jsonl")
    before = (run / "incidents.jsonl").read_bytes()
    output = (run if name != "link" else tmp_path) / name
    # WHEN the output is to be that file THEN it is refused, by force too, and the record is as it was
    assert main([command, str(run), "-o", str(output), "--force"]) == 2
    assert "is one of the files that are read" in capfd.readouterr().err
    assert (run / "incidents.jsonl").read_bytes() == before


def test_a_folder_is_no_output(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "-o", str(tmp_path)]) == 2
    assert f"mend:  -o {tmp_path}/FILE" in capfd.readouterr().err


def test_an_empty_redaction_is_none_that_was_meant(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--redact", ""]) == 2
    assert "--redact does not say what is to be left out" in capfd.readouterr().err
