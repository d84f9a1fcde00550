"""The command line as a whole: version, help, completion, interruption."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

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


def test_closed_pipe_is_no_error() -> None:
    # GIVEN a reader that goes away at once
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PROGRAM, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    # THEN no traceback
    assert "Traceback" not in done.stderr
