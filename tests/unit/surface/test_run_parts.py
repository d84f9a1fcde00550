"""Parts of `whichrank run` that need no job: what it says, and whether anybody listens where it joins."""

from __future__ import annotations

import io
import resource
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from rank_process import eventually

from whichrank.surface.run.console import Console
from whichrank.surface.run.job import exit_like
from whichrank.surface.run.reach import Reach


def test_name_is_said_once() -> None:
    stream = io.StringIO()
    Console(quiet=False, stream=stream).say("whichrank: the C++ sensor cannot be used")
    Console(quiet=False, stream=stream).say("the job goes on")
    assert stream.getvalue() == "whichrank: the C++ sensor cannot be used\nwhichrank: the job goes on\n"


def test_console_without_stderr_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    Console(quiet=False).say("nobody reads this")


def test_end_of_a_job_needs_no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(signal, "raise_signal", lambda _: None)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert exit_like(-signal.SIGKILL) == 128 + signal.SIGKILL


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_listener_is_reached(tmp_path: Path, kind: str) -> None:
    with socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX) as listener:
        listener.bind(("127.0.0.1", 0) if kind == "tcp" else str(tmp_path / "s"))
        listener.listen()
        port = listener.getsockname()[1] if kind == "tcp" else 0
        reach = Reach(f"tcp://127.0.0.1:{port}" if kind == "tcp" else f"ipc://{tmp_path / 's'}", patience_s=0.5)
        time.sleep(0.7)
        assert not reach.failed()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://nohost.invalid:1", "tcp://..:1", "ipc:///no/socket"])
def test_nobody_is_reported_when_patience_ends(address: str) -> None:
    reach = Reach(address, patience_s=0.3)
    assert not reach.failed()
    eventually(reach.failed)
