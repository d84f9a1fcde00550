"""Parts of `whichrank run` that need no job: what it says, and whether anybody listens where it joins."""

from __future__ import annotations

import io
import resource
import signal
import socket
import sys
from pathlib import Path

import pytest
from rank_process import eventually

from whichrank.server.address import Endpoint
from whichrank.surface.run.console import Console
from whichrank.surface.run.job import exit_like
from whichrank.surface.run.reach import Reach
from whichrank.wire.zmq_transport import ZmqAnalyzerEnd

KEY, OTHER_KEY = "ab" * 32, "cd" * 32


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


@pytest.mark.parametrize(("listens", "key"), [("127.0.0.1:0", ""), ("ipc://{folder}/s", ""), ("127.0.0.1:0", KEY)])
def test_analyzer_is_reached(tmp_path: Path, listens: str, key: str) -> None:
    end = ZmqAnalyzerEnd([listens.format(folder=tmp_path)], key)
    reach = Reach(Endpoint(end.addresses[0], key), patience_s=30.0)
    eventually(reach._is_in.is_set)
    reach._deadline_s = 0.0
    assert not reach.failed()
    end.close()


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (KEY, OTHER_KEY, "another key than this one"),
        (KEY, "", "asks for the key"),
        ("", KEY, "no analyzer of this job"),
    ],
)
def test_analyzer_that_asks_for_another_key(theirs: str, ours: str, said: str) -> None:
    end = ZmqAnalyzerEnd(["127.0.0.1:0"], theirs)
    reach = Reach(Endpoint(end.addresses[0], ours), patience_s=30.0)
    eventually(reach._is_refused.is_set)
    reach._deadline_s = 0.0
    assert said in reach.failed()
    end.close()


def test_listener_that_is_no_analyzer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reach = Reach(Endpoint(f"tcp://127.0.0.1:{listener.getsockname()[1]}", KEY), patience_s=0.5)
        eventually(lambda: "no analyzer answers at" in reach.failed())


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://nohost.invalid:1", "tcp://..:1", "ipc:///no/socket"])
def test_nobody_is_reported_when_patience_ends(address: str) -> None:
    reach = Reach(Endpoint(address, ""), patience_s=0.3)
    assert not reach.failed()
    eventually(lambda: bool(reach.failed()))
