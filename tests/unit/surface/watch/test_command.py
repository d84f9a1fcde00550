"""`whichrank watch` as a command: one frame, JSON, exit codes, and the live view in a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from incident_cases import RECOVERED, SLOW, not_entered
from ring_fleet import Fleet

from whichrank.surface.cli import main
from whichrank.surface.watch.frame import Frame

PROGRAM = [sys.executable, "-m", "whichrank", "watch"]
ICANON_AND_ECHO = termios.ICANON | termios.ECHO


@pytest.fixture(autouse=True)
def _no_second_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.surface.cli.watch.RATE_NEEDS_S", 0.0)


def test_one_frame_where_stdout_is_no_terminal(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet(base, 2)
    fleet.comm("mesh_tp", [0, 1])
    fleet.incidents()
    assert main(["watch"]) == 0
    out, err = capfd.readouterr()
    assert "job-1" in out
    assert "no incident" in out
    assert "\x1b" not in out
    assert err == ""


def test_json_is_a_frame(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet(base, 2)
    fleet.incidents(not_entered())
    assert main(["watch", "--json", "job-1"]) == 3
    out = capfd.readouterr().out
    found = json.loads(out)
    assert found["schema"] == "whichrank.watch/1"
    assert found["jobs"][0]["incidents"][0]["class"] == "H1"
    assert msgspec.json.decode(out, type=Frame).jobs[0].job == "job-1"


@pytest.mark.parametrize(
    ("incidents", "code"), [([], 0), ([RECOVERED], 0), ([not_entered(severity="notice")], 0), ([SLOW], 4)]
)
def test_exit_code_is_the_worst_open_alert(base: Path, incidents: list[object], code: int) -> None:
    Fleet(base, 1).incidents(*incidents)  # type: ignore[arg-type]
    assert main(["watch", "--once"]) == code


def test_exit_code_says_that_something_could_not_be_read(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichrank.agent.rings.PATIENCE_S", -1.0)
    fleet = Fleet(base, 1)
    (fleet.folder.path / "7.ring").write_bytes(b"foreign")
    assert main(["watch", "--once"]) == 5


def test_no_job_and_unknown_job(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["watch"]) == 0
    out, err = capfd.readouterr()
    assert "No job runs on this node" in out
    assert f"rings are looked for in {base}" in err
    for command in ("watch", "stacks"):
        assert main([command, "nonsense"]) == 2
        err = capfd.readouterr().err
        assert "no job 'nonsense'" in err
        assert f"where: {base}" in err


@pytest.mark.parametrize("columns", ["0", "1", "-5", "many"])
def test_width_in_which_nothing_can_be_read(
    base: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], columns: str
) -> None:
    Fleet(base, 2).incidents(not_entered())
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["watch", "--once"]) == 3
    assert "ALERT hang" in capfd.readouterr().out


def test_stacks_of_a_rank_that_is_not_here(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Fleet(base, 2)
    assert main(["stacks", "--rank", "9", "job-1"]) == 2
    err = capfd.readouterr().err
    assert "rank 9 of job job-1 is not on this node" in err
    assert "mend:  whichrank stacks job-1" in err


def test_stacks_say_which_rings_cannot_be_read(
    base: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a job whose only ring is no ring
    (Fleet(base, 0).folder.path / "7.ring").write_bytes(b"foreign")
    assert main(["stacks", "job-1"]) == 0  # it may be about to become one
    assert "cannot be read" not in capfd.readouterr().err
    # WHEN it is no longer young
    monkeypatch.setattr("whichrank.agent.rings.PATIENCE_S", -1.0)
    # THEN it is named, and the exit code says that something is missing
    assert main(["stacks", "job-1"]) == 5
    assert "whichrank: ring 7.ring cannot be read: " in capfd.readouterr().err


@pytest.mark.parametrize("output", ["5", '"a\\u0000b"', "[]", '""'])
def test_owner_that_is_damaged_is_no_reason_to_fail(base: Path, output: str) -> None:
    # GIVEN a job whose file `owner` names no folder for its incidents
    folder = Fleet(base, 1).folder
    text = f'{{"pid": {os.getpid()}, "start_ticks": 0, "boot": "", "namespace": "", "output": {output}}}'
    (folder.path / "owner").write_text(text)
    # THEN the job is shown without them
    assert main(["watch", "--once"]) == 0
    assert main(["stacks", "--suspects", "job-1"]) == 0


def test_closed_stdout_is_no_terminal(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fleet(base, 1)
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["watch"]) == 0


class Terminal:
    """`whichrank watch` in a pseudo-terminal."""

    def __init__(self, base: Path, **environ: str) -> None:
        self.fd, self.other = pty.openpty()
        termios.tcsetwinsize(self.fd, (24, 80))
        self.before = termios.tcgetattr(self.other)
        self.text = ""
        self.process = subprocess.Popen(
            PROGRAM,
            stdin=self.other,
            stdout=self.other,
            stderr=self.other,
            start_new_session=True,
            env={**os.environ, "WHICHRANK_SHM": str(base), "TERM": "xterm-256color", **environ},
        )

    def read_until(self, wanted: str, patience_s: float = 20.0) -> str:
        """What the terminal was sent, up to and with `wanted`."""
        until_s = time.monotonic() + patience_s
        while wanted not in self.text:
            assert time.monotonic() < until_s, f"{wanted!r} did not come: {self.text[-500:]!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
        return self.text

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def end(self) -> int:
        """Its exit code; all that it has written is read."""
        while self.process.poll() is None:
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
        while select.select([self.fd], [], [], 0.1)[0]:
            self.text += os.read(self.fd, 65536).decode(errors="replace")
        return self.process.wait()

    def is_as_before(self) -> bool:
        """Whether lines and echo are on again."""
        now, before = termios.tcgetattr(self.other)[3], self.before[3]
        return bool(now & ICANON_AND_ECHO == before & ICANON_AND_ECHO)


@contextmanager
def terminal(base: Path, **environ: str) -> Iterator[Terminal]:
    opened = Terminal(base, **environ)
    try:
        yield opened
    finally:
        if opened.process.poll() is None:
            opened.process.kill()
            opened.process.wait()
        os.close(opened.fd)
        os.close(opened.other)


@pytest.mark.parametrize("path", [b"q", b"Q", signal.SIGINT])
def test_live_view_ends_as_asked_and_gives_the_terminal_back(base: Path, path: bytes | signal.Signals) -> None:
    # GIVEN a job with an alert and the live view of it
    fleet = Fleet(base, 2)
    fleet.incidents(not_entered())
    with terminal(base) as view:
        view.read_until("\x1b[?1049h")
        view.read_until("q quits")
        assert "ALERT hang: rank 5" in view.text
        # WHEN the user has seen enough
        if isinstance(path, bytes):
            view.press(path)
        else:
            view.process.send_signal(path)
        # THEN it ends well, the screen and the keys are as before, and what was found stays readable
        assert view.end() == 0
        assert view.is_as_before()
        assert "ALERT hang: rank 5" in view.text.rpartition("\x1b[?1049l")[2]


def test_live_view_ended_by_a_signal_gives_the_terminal_back(base: Path) -> None:
    Fleet(base, 1)
    with terminal(base) as view:
        view.read_until("q quits")
        view.process.terminate()
        assert view.end() == 128 + signal.SIGTERM
        assert view.is_as_before()
        assert "\x1b[?1049l" in view.text


def test_live_view_finds_a_job_that_starts_later(base: Path) -> None:
    with terminal(base) as view:
        view.read_until("No job runs on this node")
        Fleet(base, 1, "late-job")
        view.read_until("late-job")
        view.press(b"q")
        assert view.end() == 0


def test_dumb_terminal_gets_one_frame(base: Path) -> None:
    Fleet(base, 1)
    with terminal(base, TERM="dumb") as view:
        assert view.end() == 0
        assert "\x1b[?1049h" not in view.text


def test_no_color(base: Path) -> None:
    fleet = Fleet(base, 2)
    fleet.incidents(not_entered())
    with terminal(base, NO_COLOR="1") as view:
        view.read_until("q quits")
        view.press(b"q")
        view.end()
    assert "\x1b[31m" not in view.text
    assert "\x1b[1;31m" not in view.text
