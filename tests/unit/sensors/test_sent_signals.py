"""Which signals a process sends to others to end them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.ring.end_signals import EndSignals
from whichrank.sensors import sent_signals


@pytest.fixture
def signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EndSignals:
    """What this process sends, written down while the test runs."""
    monkeypatch.setattr(os, "kill", os.kill)
    monkeypatch.setattr(os, "killpg", os.killpg)
    sent_signals.watch(tmp_path)
    return EndSignals(tmp_path)


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)


def test_what_ends_a_process_is_reported_with_its_pid(signals: EndSignals) -> None:
    # GIVEN processes that are ended by subprocess, by their group and by multiprocessing
    one, group = sleeper(), sleeper()
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    left_by_others = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a fork inherits it
    child.start()
    signal.signal(signal.SIGTERM, left_by_others)
    one.terminate()
    os.killpg(group.pid, signal.SIGINT)
    child.terminate()
    # THEN they end as always, and each is written down
    assert one.wait(30) == -signal.SIGTERM
    assert group.wait(30)
    child.join(30)
    assert child.exitcode == -signal.SIGTERM
    reported = [(reported.name, reported.target) for reported in signals.news()]
    assert reported == [("SIGTERM", one.pid), ("SIGINT", group.pid), ("SIGTERM", child.pid)]


def test_nothing_else_is(signals: EndSignals) -> None:
    one = sleeper()
    os.kill(one.pid, 0)
    os.kill(one.pid, signal.SIGSTOP)
    os.kill(one.pid, signal.SIGCONT)
    one.kill()
    one.wait(30)
    with pytest.raises(TypeError):
        os.kill(one.pid)  # type: ignore[call-arg]
    with pytest.raises(ProcessLookupError):
        os.kill(2**22 - 1, signal.SIGKILL)
    assert signals.news() == []


def test_a_folder_that_is_gone_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", os.kill)
    monkeypatch.setattr(os, "killpg", os.killpg)
    sent_signals.watch(tmp_path / "gone")
    one = sleeper()
    os.kill(one.pid, signal.SIGTERM)
    assert one.wait(30) == -signal.SIGTERM


@pytest.mark.usefixtures("signals")
def test_the_functions_can_still_be_sent_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps([os.kill, os.killpg])) == [os.kill, os.killpg]
