"""`whichrank why`: which record it reads, what it prints, and its exit codes."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from incident_cases import KILLED, RECOVERED, SLOW, SUSPENDED, not_entered

from whichrank.model.incident import Incident, encode_incident
from whichrank.ring.folder import JobFolder
from whichrank.surface.cli import main


def write(folder: Path, *incidents: Incident | bytes, end: bytes = b"\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line if isinstance(line, bytes) else encode_incident(line) for line in incidents]
    (folder / "incidents.jsonl").write_bytes(b"\n".join(lines) + (end if lines else b""))
    return folder


def renamed(incident: Incident, incident_id: str) -> Incident:
    return msgspec.structs.replace(incident, id=incident_id)


def of_job(job: str, number: int, incident: Incident | None = None) -> Incident:
    return msgspec.structs.replace(incident or not_entered(), job=job, id=f"{job}-{number}")


def running(tmp_path: Path, job: str, *incidents: Incident) -> Path:
    """A job that runs on this node and writes elsewhere."""
    output = write(tmp_path / "elsewhere" / job, *incidents)
    JobFolder.create(job, owner_pid=os.getpid(), output=str(output), base=tmp_path / "shm")
    return output


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHICHRANK_SHM", str(tmp_path / "shm"))


def test_prints_headline_and_paragraph(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(write(tmp_path / "run", not_entered()))]) == 3
    out, err = capfd.readouterr()
    title, text, *lines = out.splitlines()
    assert title.startswith("ALERT hang: rank 5 (node node-a) has not entered the all-reduce on dp")
    assert title.endswith("; its process is suspended  [i-1]")
    assert text.startswith("Rank 5 (node node-a, pid 4211, cuda:1) has not entered")
    assert "  next        whichrank stacks --suspects" in lines
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


def test_id_is_searched_in_all_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "whichrank-out" / "a", renamed(not_entered(), "x1"), renamed(SLOW, "x2"))
    write(tmp_path / "whichrank-out" / "b", renamed(KILLED, "y1"))
    assert main(["why", "x2", "--json"]) == 4
    assert [entry["id"] for entry in json.loads(capfd.readouterr().out)] == ["x2"]


def test_job_that_runs_here_comes_before_an_older_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN the folder of an older run, and a job that runs here, writes elsewhere, and has an alert
    write(tmp_path / "whichrank-out" / "a", of_job("a", 1, RECOVERED))
    running(tmp_path, "live", of_job("live", 1))
    # THEN that one is reported, by default and by its id
    for target in ([], ["live-1"]):
        assert main(["why", *target]) == 3
        out, err = capfd.readouterr()
        assert "[live-1]" in out
        assert "[a-1]" not in out
        assert err == ""


def test_job_that_runs_here_without_an_incident_hides_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a healthy job that runs here
    output = running(tmp_path, "live")
    assert main(["why"]) == 0
    assert f"No incident in {output}" in capfd.readouterr().out
    # WHEN there is a run that somebody wants to read again THEN it is read
    write(tmp_path / "whichrank-out" / "a", of_job("a", 1))
    assert main(["why"]) == 3
    out, err = capfd.readouterr()
    assert "[a-1]" in out
    assert err == f"whichrank: no job that runs here has an incident ({output}); this is of an older run\n"


def test_newest_run_goes_on_although_it_is_led_to_by_another_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN two jobs that run here, both without an open incident; one writes into the newest run, by a link to it
    output = running(tmp_path, "a")
    running(tmp_path, "b")
    (tmp_path / "whichrank-out").mkdir()
    (tmp_path / "whichrank-out" / "a").symlink_to(output)
    assert main(["why"]) == 0
    out, err = capfd.readouterr()
    # THEN the run that is reported is not called an older one
    assert "No incident in whichrank-out/a" in out
    assert err == ""


def test_of_several_jobs_that_run_here_one_is_reported_and_the_others_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN three jobs that run here: one with a notice, one with an open alert, and a healthy one
    notice = running(tmp_path, "a", of_job("a", 1, SUSPENDED))
    running(tmp_path, "b", of_job("b", 1))
    running(tmp_path, "c")
    # THEN the alert is reported, and in one line where else there is something to read
    assert main(["why"]) == 3
    out, err = capfd.readouterr()
    assert "[b-1]" in out
    assert "[a-1]" not in out
    assert err == f"whichrank: 2 running jobs have incidents; these are of b. The others: whichrank why {notice}\n"


def test_folder_of_several_jobs_says_the_latest(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN a folder in which two jobs have failed, and a third, healthy one has run
    folder = write(tmp_path / "run", of_job("a", 1), of_job("a", 2, SLOW), of_job("b", 1, KILLED))
    (folder / "job.json").write_text('{"schema": "whichrank.job/1", "job": "c"}')
    # THEN the latest job is reported, its exit code is given, and in one line what else is there and how to see it
    assert main(["why", str(folder)]) == 0
    out, err = capfd.readouterr()
    assert out == f"No incident of job c in {folder}/incidents.jsonl.\n"
    assert err == (
        "whichrank: the file also holds 3 older incidents: 2 of job a, 1 of job b; "
        f"to see one: whichrank why {folder}/ID, where ID is one of a-1, a-2, b-1\n"
    )
    assert main(["why", f"{folder}/a-2"]) == 4
    assert capfd.readouterr().out.count("[") == 1
    assert main(["why", str(folder), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == []
    # WHEN the latest one has an incident of its own
    with (folder / "incidents.jsonl").open("ab") as file:
        file.write(encode_incident(of_job("c", 1, SLOW)) + b"\n")
    assert main(["why", str(folder)]) == 4
    assert capfd.readouterr().out.count("[") == 1
    # AND WHEN nothing says which is the latest THEN it is the one that wrote last; a file of another name is reported
    # whole
    (folder / "job.json").write_text("{broken")
    assert main(["why", str(folder)]) == 4
    (folder / "incidents.jsonl").rename(folder / "all")
    assert main(["why", str(folder / "all")]) == 3


def test_reader_that_leaves_does_not_change_the_exit_code(tmp_path: Path) -> None:
    # GIVEN a record with an alert, and readers who have gone, at once or after a line
    folder = write(tmp_path / "run", *(of_job("a", number) for number in range(400)))
    why = f"{shlex.join([sys.executable, '-m', 'whichrank', 'why', str(folder)])}"
    for reader in ("true", "head -1 > /dev/null"):
        script = f"{{ {why}; echo $? > code; }} 2> said | {reader}"
        subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True)
        # THEN the exit code says what was found, and nothing else is said
        assert (tmp_path / "code").read_text() == "3\n"
        assert (tmp_path / "said").read_text() == ""


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


def test_garbage_is_reported_once_with_a_count(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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
