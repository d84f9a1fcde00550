"""What /proc says of real processes in every state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_process import RankProcess, eventually

from whichrank.agent import processes
from whichrank.agent.processes import cpu_of, living_children, read_process, read_thread, wait_channel
from whichrank.model.telemetry import ProcessState, WaitChannel

WCHAN_IS_HIDDEN = Path(f"/proc/{os.getpid()}/wchan").read_text() == "" and not Path("/proc/1/wchan").exists()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as child:
        eventually(lambda: read_process(child.pid).state == ProcessState.SLEEPING)
        yield child
        child.kill()


def test_states(sleeper: subprocess.Popen[bytes]) -> None:
    assert read_process(os.getpid()).state == ProcessState.RUNNING
    sleeper.send_signal(signal.SIGSTOP)
    eventually(lambda: read_process(sleeper.pid).state == ProcessState.STOPPED)
    sleeper.send_signal(signal.SIGCONT)
    eventually(lambda: read_process(sleeper.pid).state == ProcessState.SLEEPING)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    snapshot = read_process(sleeper.pid)
    assert (snapshot.state, snapshot.exit_status) == (ProcessState.ZOMBIE, signal.SIGKILL)
    sleeper.wait()
    assert read_process(sleeper.pid) == processes.GONE


def test_exit_code_of_a_zombie_is_as_from_wait() -> None:
    child = subprocess.Popen(["sh", "-c", "exit 7"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert os.waitstatus_to_exitcode(read_process(child.pid).exit_status) == 7
    child.wait()


def test_exit_code_of_a_reaped_process() -> None:
    child = subprocess.Popen(["sh", "-c", "exit 7"])
    pidfd = os.pidfd_open(child.pid)
    child.wait()
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    assert processes.reaped_status(pidfd) == (7 << 8 if release >= (6, 15) else -1)
    os.close(pidfd)
    assert processes.reaped_status(pidfd) == -1


def test_name_with_brackets_and_spaces_is_no_trap(tmp_path: Path) -> None:
    program = tmp_path / "a) R (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "1000"]) as child:
        eventually(lambda: read_process(child.pid).state == ProcessState.SLEEPING)
        child.kill()


@pytest.mark.skipif(WCHAN_IS_HIDDEN, reason="this kernel hides wait channels")
def test_wait_channels(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    eventually(lambda: read_thread(sleeper.pid, sleeper.pid).channel == WaitChannel.SLEEP)
    with RankProcess(tmp_path) as rank:
        eventually(lambda: read_thread(rank.pid, rank.pid).channel == WaitChannel.IO)
        rank.do("lock")
        eventually(lambda: read_thread(rank.pid, rank.pid).channel == WaitChannel.LOCK)
        before = read_thread(rank.pid, rank.pid)
        time.sleep(0.1)
        assert read_thread(rank.pid, rank.pid) == before
    assert read_thread(os.getpid(), os.getpid()).channel == WaitChannel.NONE


def test_wait_channel_that_is_hidden_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    for hidden in (b"", b"0"):
        monkeypatch.setattr(processes, "read", lambda path, hidden=hidden: hidden)
        assert wait_channel(1, 1, ProcessState.SLEEPING) == WaitChannel.UNKNOWN


@pytest.mark.parametrize(
    ("symbol", "channel"),
    [
        (b"futex_wait_queue_me", WaitChannel.LOCK),
        (b"__futex_wait", WaitChannel.LOCK),
        (b"poll_schedule_timeout.constprop.0", WaitChannel.IO),
        (b"folio_wait_bit_common", WaitChannel.DISK),
        (b"wait4", WaitChannel.OTHER),
    ],
)
def test_symbols(monkeypatch: pytest.MonkeyPatch, symbol: bytes, channel: WaitChannel) -> None:
    monkeypatch.setattr(processes, "read", lambda path: symbol)
    assert wait_channel(1, 1, ProcessState.SLEEPING) == channel


def test_gone_thread_is_unknown() -> None:
    assert read_thread(os.getpid(), 999_999_999).state == ProcessState.UNKNOWN


def test_children_and_their_cpu() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        assert child.pid in living_children(os.getpid())
        eventually(lambda: cpu_of([child.pid])[child.pid] >= 50_000_000)
        child.kill()
    assert cpu_of([child.pid]) == {}


def test_written_bytes(tmp_path: Path) -> None:
    before = processes.io_of(os.getpid()).written_bytes
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    assert processes.io_of(os.getpid()).written_bytes - before >= 1 << 20
    assert processes.io_of(999_999_999) == (0, 0)
