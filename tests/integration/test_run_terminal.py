"""`whichrank run` on a terminal: it stays the job's, and so do its signals."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CTRL_C, CTRL_Z, CTRL_BACKSLASH = b"\x03", b"\x1a", b"\x1c"
PATIENCE_S = 30.0

pytestmark = pytest.mark.integration

# A shell as far as job control goes: gives the terminal to its job, says when that stops, continues it, says its end.
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    if "IGNORING" in os.environ:  # as a script does for what it starts with &
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, os.getpgrp())
    print("<stopped>", flush=True)
    os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
os.tcsetpgrp(0, os.getpgrp())
print("<ended %d>" % os.waitstatus_to_exitcode(status), flush=True)
"""

JOB = """
import os, signal, sys, time
count = 0
def on_signal(number, frame):
    global count
    count += 1
    print("<signal %d, the %d.>" % (number, count), flush=True)
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, on_signal)
signal.signal(signal.SIGALRM, lambda *_: None)  # Python leaves a signal that comes just before a read for later
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
print("<parent %d>" % os.getppid(), flush=True)
time.sleep(0.2)
foreground = os.tcgetpgrp(0) == os.getpgrp()
print("<tty %s %s %s, foreground %s, parent in group %s>" % (
    *map(os.isatty, (0, 1, 2)), foreground, os.getpgid(os.getppid()) == os.getpgrp()), flush=True)
line = sys.stdin.readline().strip()
signal.setitimer(signal.ITIMER_REAL, 0)  # an interpreter that ends handles signals no more
print("<read %s>" % line, flush=True)
sys.exit(5)
"""


class Terminal:
    """A pseudo terminal with the shell above running `whichrank run` on the job above."""

    def __init__(self, folder: Path, job: str = JOB, **more: str) -> None:
        script = folder / "job.py"
        script.write_text(job)
        program = [sys.executable, "-m", "whichrank", "run", "--output", str(folder / "out")]
        command = [*program, "--", sys.executable, str(script)]
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            environ = {**os.environ, "WHICHRANK_SHM": str(folder / "shm"), **more}
            os.execve(sys.executable, [sys.executable, "-c", SHELL, *command], environ)
        self.shown = b""

    def until(self, text: str) -> str:
        """All that was shown, once `text` is in it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text.encode() not in self.shown:
            assert time.monotonic() < deadline_s, self.shown
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.master, 4096)
                except OSError as error:  # the other side is closed
                    raise AssertionError(self.shown) from error
        return self.shown.decode()

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def close(self) -> None:
        os.close(self.master)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    yield found
    found.close()


def test_terminal_is_the_jobs(terminal: Terminal) -> None:
    terminal.until("<tty True True True, foreground True, parent in group True>")
    terminal.type(b"hello\n")
    terminal.until("<read hello>")
    terminal.until("<ended 5>")


@pytest.mark.parametrize(("key", "number"), [(CTRL_C, signal.SIGINT), (CTRL_BACKSLASH, signal.SIGQUIT)])
def test_key_reaches_the_job_once_and_we_wait(terminal: Terminal, key: bytes, number: int) -> None:
    terminal.until("<tty")
    terminal.type(key)
    terminal.until(f"<signal {number}, the 1.>")
    time.sleep(0.3)
    terminal.type(b"x\n")
    assert "the 2.>" not in terminal.until("<ended 5>")


def wait_until_it_listens(pid: int) -> None:
    """Until it tells signals of the terminal from those of a process: a moment after the job has begun."""
    for _ in range(300):
        blocked = int(Path(f"/proc/{pid}/status").read_text().split("SigBlk:")[1].split()[0], 16)
        if blocked >> (signal.SIGINT - 1) & 1:
            return
        time.sleep(0.1)
    pytest.fail("it does not listen")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_signal_to_us_alone_reaches_the_job_in_the_foreground(terminal: Terminal, number: signal.Signals) -> None:
    # GIVEN a run in the foreground of a terminal
    shown = terminal.until("parent in group True>")
    ours = int(shown.split("<parent ")[1].split(">")[0])
    wait_until_it_listens(ours)
    # WHEN a process sends it a signal a few times
    for count in (1, 2, 3):
        os.kill(ours, number)
        # THEN each reaches the job, once
        terminal.until(f"<signal {number}, the {count}.>")
    time.sleep(0.3)
    terminal.type(b"x\n")
    assert "the 4.>" not in terminal.until("<ended 5>")


def test_key_and_signal_reach_the_job_once_where_we_were_started_to_ignore_them(tmp_path: Path) -> None:
    # GIVEN a script in the foreground that has started a run with `&`, and a job that takes the signals up
    terminal = Terminal(tmp_path, IGNORING="1")
    shown = terminal.until("parent in group True>")
    ours = int(shown.split("<parent ")[1].split(">")[0])
    wait_until_it_listens(ours)
    # WHEN Ctrl-C is typed THEN the job gets it from the terminal, and not from us, too
    terminal.type(CTRL_C)
    terminal.until(f"<signal {signal.SIGINT}, the 1.>")
    time.sleep(0.3)
    # AND WHEN a process sends it to us THEN the job gets it from us
    os.kill(ours, signal.SIGINT)
    terminal.until(f"<signal {signal.SIGINT}, the 2.>")
    terminal.type(b"x\n")
    assert "the 3.>" not in terminal.until("<ended 5>")
    terminal.close()


def test_ctrl_z_and_fg(terminal: Terminal) -> None:
    terminal.until("<tty")
    time.sleep(0.3)
    terminal.type(CTRL_Z)
    terminal.until("<stopped>")
    terminal.type(b"x\n")
    terminal.until("<read x>")
    terminal.until("<ended 5>")


def test_ctrl_c_that_ends_the_job_ends_us_by_the_signal(tmp_path: Path) -> None:
    terminal = Terminal(
        tmp_path, "import signal, time\nsignal.signal(2, signal.SIG_DFL)\nprint('<on>', flush=True)\ntime.sleep(1000)"
    )
    terminal.until("<on>")
    terminal.type(CTRL_C)
    terminal.until("<ended -2>")
    terminal.close()
