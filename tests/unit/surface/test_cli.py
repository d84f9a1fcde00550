"""The command line as a whole: version, help, completion, interruption."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import whichrank
from whichrank.errors import IncompleteDataError
from whichrank.surface import cli as commands
from whichrank.surface.cli import main

PROGRAM = [sys.executable, "-m", "whichrank"]


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"whichrank {whichrank.__version__}\n"


def test_help_lists_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capfd.readouterr().out
    assert all(name in out for name in commands.COMMANDS)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (IncompleteDataError("it is gone", where="here", mend="look there"), 5),
        (KeyboardInterrupt(), 130),
        (click.UsageError("no"), 2),
    ],
)
def test_main_alone_prints_errors_and_makes_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], raised: BaseException, code: int
) -> None:
    @click.command()
    def failing() -> None:
        raise raised

    monkeypatch.setattr(commands.LazyGroup, "get_command", lambda *_: failing)
    assert main(["why"]) == code
    out, err = capfd.readouterr()
    assert out == ""
    if code == 5:
        assert err == "whichrank: it is gone\n  where: here\n  mend:  look there\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    done = subprocess.run([*PROGRAM, "completion", shell], capture_output=True, text=True, check=True)
    assert "_WHICHRANK_COMPLETE" in done.stdout


def test_completion_completes_commands() -> None:
    environ = {**os.environ, "_WHICHRANK_COMPLETE": "bash_complete", "COMP_WORDS": "whichrank wh", "COMP_CWORD": "1"}
    done = subprocess.run(PROGRAM, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.split(",")[1].strip() == "why"


@pytest.mark.parametrize("command", [["--help"], ["watch", "--once"]])
def test_output_without_room_is_said_in_a_sentence(command: list[str], tmp_path: Path) -> None:
    # GIVEN a stdout on a full disk
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "WHICHRANK_SHM": str(tmp_path)},
        )
    # THEN one sentence says so
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "whichrank: the output cannot be written: No space left on device"
    assert "Traceback" not in done.stderr


def test_other_errors_of_the_system_are_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "some/file")

    monkeypatch.setattr(commands.LazyGroup, "get_command", lambda *_: failing)
    with pytest.raises(OSError, match="some/file"):
        main(["why"])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("end", "code"), [("exit 7", 7), ("kill -9 $$", -signal.SIGKILL)])
def test_job_runs_where_a_stream_is_closed(closed: str, end: str, code: int, tmp_path: Path) -> None:
    # GIVEN a run that is started without stdin, stdout or stderr
    run = f"exec {shlex.join(PROGRAM)} run --output out -- sh -c 'touch ran; {end}' {closed}"
    # WHEN its job ends
    done = subprocess.run(
        ["sh", "-c", run], cwd=tmp_path, check=False, env={**os.environ, "WHICHRANK_SHM": str(tmp_path / "shm")}
    )
    # THEN the job has run, the run ends like it, and nothing was written into a file that is not for it
    assert done.returncode in (code, 128 - code)
    assert (tmp_path / "ran").exists()
    assert (tmp_path / "out" / "incidents.jsonl").read_bytes() == b""


def test_closed_pipe_is_no_error() -> None:
    # GIVEN a reader that goes away at once
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PROGRAM, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    # THEN no traceback
    assert "Traceback" not in done.stderr
