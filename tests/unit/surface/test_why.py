"""`whichrank why`: which record it reads, what it prints, and its exit codes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import msgspec
import pytest
from incident_cases import KILLED, RECOVERED, SLOW, SUSPENDED, not_entered

from whichrank.model.incident import Incident, encode_incident
from whichrank.surface.cli import main


def write(folder: Path, *incidents: Incident | bytes, end: bytes = b"\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line if isinstance(line, bytes) else encode_incident(line) for line in incidents]
    (folder / "incidents.jsonl").write_bytes(b"\n".join(lines) + (end if lines else b""))
    return folder


def renamed(incident: Incident, incident_id: str) -> Incident:
    return msgspec.structs.replace(incident, id=incident_id)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_prints_headline_and_paragraph(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(write(tmp_path / "run", not_entered()))]) == 3
    out, err = capfd.readouterr()
    assert out.startswith("ALERT hang: rank 5 has not entered all-reduce on dp  [i-1]\nHang: rank 5 (node-a")
    assert "\x1b" not in out
    assert err == ""


@pytest.mark.parametrize(
    ("incidents", "code"),
    [
        ([], 0),
        ([RECOVERED], 0),
        ([SUSPENDED], 0),
        ([not_entered()], 3),
        ([KILLED], 3),
        ([SLOW], 4),
        ([renamed(SLOW, "a"), renamed(KILLED, "b")], 3),
    ],
)
def test_exit_code_is_the_worst_alert(tmp_path: Path, incidents: list[Incident], code: int) -> None:
    assert main(["why", str(write(tmp_path / "run", *incidents))]) == code


def test_last_line_of_an_id_wins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN an alert, another incident, and news that the first has recovered
    folder = write(tmp_path / "run", not_entered(), renamed(SLOW, "other"), RECOVERED)
    # WHEN it is read as JSON
    assert main(["why", str(folder), "--json"]) == 4
    # THEN each id stands once, in order of its first line, with its last state
    found = [(entry["id"], entry["status"]) for entry in json.loads(capfd.readouterr().out)]
    assert found == [("i-1", "recovered"), ("other", "open")]


def test_newest_run_is_the_default(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "whichrank-out" / "b", tmp_path / "whichrank-out" / "a"
    write(old, not_entered())
    write(new, renamed(SLOW, "new"))
    os.utime(old / "incidents.jsonl", (1, 1))
    assert main(["why"]) == 4
    assert "[new]" in capfd.readouterr().out


def test_id_is_looked_for_in_all_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "whichrank-out" / "a", renamed(not_entered(), "x1"), renamed(SLOW, "x2"))
    write(tmp_path / "whichrank-out" / "b", renamed(KILLED, "y1"))
    assert main(["why", "x2", "--json"]) == 4
    assert [entry["id"] for entry in json.loads(capfd.readouterr().out)] == ["x2"]


def test_empty_record_is_healthy(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "run")
    assert main(["why", str(folder)]) == 0
    assert "No incident in" in capfd.readouterr().out
    assert main(["why", str(folder), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == []


@pytest.mark.parametrize(("rest", "code"), [([], 5), ([not_entered()], 3)])
def test_bad_line_is_named_and_the_rest_is_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], rest: list[Incident], code: int
) -> None:
    assert main(["why", str(write(tmp_path / "run", b"{broken", *rest))]) == code
    assert "incidents.jsonl, line 1" in capfd.readouterr().err


def test_unfinished_last_line_is_passed_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = encode_incident(not_entered())
    folder = write(tmp_path / "run", renamed(SLOW, "whole"), line[:100], end=b"")
    assert main(["why", str(folder)]) == 4
    out, err = capfd.readouterr()
    assert "[whole]" in out
    assert "line 2" in err
    assert "unfinished" in err


def test_other_version_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = encode_incident(not_entered()).replace(b"incident/1", b"incident/7")
    assert main(["why", str(write(tmp_path / "run", line))]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "whichrank.incident/7" in err
    assert "line 1" in err
    assert "pip install --upgrade whichrank" in err


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["why"], 2, "no run was found here"),
        (["why", "nothing"], 2, "no folder and no incident called 'nothing'"),
        (["why", "."], 5, "no record of incidents"),
        (["why", "--jsn"], 2, "No such option"),
        (["wy"], 2, "Did you mean 'why'?"),
    ],
)
def test_errors_say_what_and_how(capfd: pytest.CaptureFixture[str], args: list[str], code: int, said: str) -> None:
    assert main(args) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err


def test_garbage_is_told_once_with_a_count(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN a file that is no record, and one with a good line among bad ones
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x00\xffnonsense\n" * 381)
    assert main(["why", str(garbage)]) == 5
    err = capfd.readouterr().err
    assert err.count("whichrank: ") == 1
    assert "381 lines are no incident" in err
    assert "line 1" in err
    assert main(["why", str(write(tmp_path / "run", b"{", not_entered(), b"{"))]) == 3
    assert "2 lines are no incident" in capfd.readouterr().err


def test_line_that_is_too_deep_is_no_incident(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    deep = b'{"schema":"whichrank.incident/1","x":' + b"[" * 200_000
    assert main(["why", str(write(tmp_path / "run", deep, not_entered()))]) == 3
    err = capfd.readouterr().err
    assert "it is nested too deeply" in err
    assert "line 1" in err


def test_working_directory_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["why"]) == 2
    assert main(["why", "x"]) == 2
    assert "where: whichrank-out" in capfd.readouterr().err


def test_pipe_is_refused_and_not_waited_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["why", str(tmp_path / "pipe")]) == 5
    assert "it is no regular file" in capfd.readouterr().err


def test_place_that_may_not_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stat_of = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if "secret" in path.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat_of(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    assert main(["why", str(tmp_path / "secret" / "x")]) == 5
    err = capfd.readouterr().err
    assert "Permission denied" in err
    assert "mend:" in err
    assert main(["why", "x" * 5000]) == 5
    # WHEN a run among others cannot be seen, THEN the others can
    write(tmp_path / "whichrank-out" / "a", not_entered())
    (tmp_path / "whichrank-out" / "secret").mkdir()
    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    assert main(["why", "i-1"]) == 3
