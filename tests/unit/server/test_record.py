"""The files of a run, and what a watched process is given."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from incident_cases import not_entered
from msgspec import structs

from whichrank.ring.folder import JobFolder
from whichrank.server.environment import additions
from whichrank.server.incidents_file import read_incidents
from whichrank.server.place import absolute
from whichrank.server.record import JobSummary, Record, readable, utc_now


def test_command_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    # GIVEN a command with an argument that is no UTF-8, as the system gives it
    command = readable(["echo", os.fsdecode(b"a\xffb"), "ü"])
    record = Record(tmp_path)
    # WHEN the run ends THEN job.json is written
    record.close(JobSummary(job="j", command=command, started=utc_now()))
    assert json.loads((tmp_path / "job.json").read_bytes())["command"] == ["echo", "a�b", "ü"]
    assert not record.fault


def test_nothing_of_another_job_is_lost(tmp_path: Path) -> None:
    # GIVEN a folder into which a job has written that was killed in the middle of a line
    old = JobSummary(job="old", command=["a"], started=utc_now())
    record = Record(tmp_path)
    assert record.begin(old) == ()
    record.write(structs.replace(not_entered(), job="old", id="old-1"))
    record.close(old)
    with (tmp_path / "incidents.jsonl").open("ab") as file:
        file.write(b'{"schema": "whichra')
    # WHEN another one takes it
    record = Record(tmp_path)
    found = record.begin(JobSummary(job="new", command=["b"], started=utc_now()))
    record.write(structs.replace(not_entered(), job="new", id="new-1"))
    record.close(JobSummary(job="new", command=["b"], started=utc_now()))
    # THEN the new one can say what lies there, the old job's summary is kept, and each line stands for itself
    assert [incident.id for incident in found] == ["old-1"]
    assert json.loads((tmp_path / "job.json").read_bytes())["job"] == "new"
    assert json.loads((tmp_path / "job-old.json").read_bytes())["command"] == ["a"]
    reading = read_incidents(tmp_path / "incidents.jsonl")
    assert ([i.id for i in reading.incidents], [i.id for i in reading.older]) == (["new-1"], ["old-1"])
    # AND WHEN the same is done again THEN again nothing is written over
    (tmp_path / "job.json").write_text("no JSON")
    for _ in range(2):
        record = Record(tmp_path)
        record.begin(old)
        record.close(old)
    kept = {"job-before.json", "job-old.json", "job-old-1.json"}
    assert {path.name for path in tmp_path.glob("job-*")} == kept


def test_folder_in_which_nothing_was_written_is_removed(tmp_path: Path) -> None:
    record = Record(tmp_path / "out" / "a")
    record.begin(JobSummary(job="a", command=[], started=utc_now()))
    # GIVEN that the job itself has written there THEN it stays
    (tmp_path / "out" / "a" / "model.pt").touch()
    record.remove_if_empty()
    assert (tmp_path / "out" / "a" / "job.json").exists()
    # WHEN nobody has THEN it goes, and with it the one around it
    (tmp_path / "out" / "a" / "model.pt").unlink()
    record.remove_if_empty()
    assert not (tmp_path / "out").exists()


def test_folder_of_rings_is_told_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a base that is named from the working directory, which a rank may leave
    monkeypatch.chdir(tmp_path)
    assert additions(JobFolder(Path("rings/j")), {})["WHICHRANK_DIR"] == str(tmp_path / "rings" / "j")
    # WHEN there is no working directory any more THEN it is reported as it is
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert absolute(Path("rings")) == Path("rings")
