"""`whichrank analyze`, as a program that reads its output sees it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from whichrank.surface.cli import main
from whichrank.testbed.bench.dumps.cases import cases
from whichrank.testbed.bench.dumps.compare import write_case


def noise(folder: Path) -> None:
    (folder / "trace_0").write_bytes(b"\x00" + random.Random(1).randbytes(1000))


def two_jobs(folder: Path) -> None:
    for start in ("host stopped, dp8, whole", "host stopped, tp2-dp2-pp2, whole"):
        (folder / start[14:17]).mkdir()
        write_case(next(case for case in cases() if case.name.startswith(start)), folder / start[14:17])


@pytest.mark.parametrize(
    ("fill", "code", "states"),
    [
        (lambda _: None, 5, set()),
        (noise, 5, {"ignored"}),
        (lambda folder: (folder / "trace_0").write_bytes(b"\x80\x02}q\x00"), 5, {"damaged"}),
        (lambda folder: folder.rmdir(), 5, set()),
        (two_jobs, 2, {"read"}),
    ],
    ids=["empty", "noise", "damaged", "missing", "two jobs"],
)
def test_json_is_json_also_where_nothing_can_be_said(
    fill: Callable[[Path], None], code: int, states: set[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN paths that hold no recording of one job
    (tmp_path / "given").mkdir()
    fill(tmp_path / "given")
    # WHEN they are analyzed for a program
    assert main(["analyze", "--json", str(tmp_path / "given")]) == code
    # THEN it gets what became of each file, and the sentence is beside it
    out, err = capfd.readouterr()
    said = json.loads(out)
    assert said["incidents"] == []
    assert {note["state"] for note in said["intake"]} == states
    assert err.startswith("whichrank: ")
    assert "\n  mend:  " in err


@pytest.mark.parametrize("command", ["analyze", "report", "export", "replay"])
def test_what_cannot_be_read_is_named(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file that opens and whose first bytes cannot be read
    monkeypatch.chdir(tmp_path)
    assert main([command, "/proc/self/mem"]) == 5
    # THEN that is said of it, and not of the output
    err = capfd.readouterr().err
    assert "/proc/self/mem" in err
    assert "cannot be read: Input/output error" in err


def test_a_copy_that_is_not_used_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # GIVEN dumps of a job, and a copy of one of them
    write_case(next(case for case in cases() if case.name.startswith("host stopped, dp8, whole")), tmp_path)
    (tmp_path / "again").mkdir()
    copy = tmp_path / "again" / "trace_0"
    copy.write_bytes((tmp_path / "trace_0").read_bytes())
    # WHEN they are analyzed THEN it is said which one was not used, and why
    main(["analyze", str(tmp_path)])
    said = capfd.readouterr().err
    assert re.search(r"'.*trace_0' was not used: it says the same as '.*trace_0'", said)
