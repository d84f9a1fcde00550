"""Keeps the agent of `whichrank run` running.

Restarting costs nothing: rings keep what the agent had not read, and states are reported afresh. An agent that ends
again and again is tried more and more seldom; the job never hears of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Final

from whichrank.agent.processes import read
from whichrank.ring.folder import JobFolder
from whichrank.server.address import INSECURE, KEY, Endpoint
from whichrank.server.agent_arguments import AgentArguments
from whichrank.server.another_job import AnotherJobError
from whichrank.server.environment import PRELOAD
from whichrank.server.private_file import open_private

_LIVED_S: Final = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_HOPELESS: Final = 5
_MOST_SAID: Final = 4096


def _nowhere() -> IO[bytes] | None:
    """For what an agent says where there is no log: read if it is sent away."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return None


def _handles_sigterm(pid: int) -> bool:
    """Whether it has got as far as to have a handler; before that SIGTERM would just kill it."""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


class AgentSupervisor:
    """Keeps one agent running.

    Args:
        folder: The job's rings.
        endpoint: Where the analyzer listens.
        log: Takes what the agent writes to stderr.

    Attributes:
        starts: How often it was started.
        hopeless: It has ended at once, several times in a row.
        is_sent_away: The analyzer is of another job; the agent has left and is not started again.
    """

    def __init__(self, folder: JobFolder, endpoint: Endpoint, log: Path | None) -> None:
        arguments = AgentArguments(folder.job, endpoint.address, os.getpid())
        self._command = [sys.executable, "-P", "-m", "whichrank", *arguments.as_given()]
        given_anew = (PRELOAD, KEY, INSECURE)
        self._environ = {name: value for name, value in os.environ.items() if name not in given_anew}
        self._environ["WHICHRANK_SHM"] = str(folder.path.parent)
        self._environ |= {KEY: endpoint.key} if endpoint.key else {INSECURE: "1"}
        self._environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy would start a thread per core, of which it has no use
        self._log: IO[bytes] | None = open_private(log) if log else _nowhere()
        self._log_path = log
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._next_s = 0.0
        self._failures = 0
        self._asked_to_end = False
        self._news = ""
        self.starts = 0
        self.hopeless = False
        self.is_sent_away = False

    @property
    def pid(self) -> int | None:
        """The running agent."""
        return self._process.pid if self._process else None

    def step(self) -> None:
        """Start it if it does not run and its time has come."""
        now_s = time.monotonic()
        if self._process and self._process.poll() is not None:
            if self._process.returncode == AnotherJobError.exit_code and not self.is_sent_away:
                self.is_sent_away = True
                self._news = self._last_said()
            if self._process.returncode < 0:
                self._news = f"the agent ended by signal {-self._process.returncode} and is started again"
            self._process = None
            self._failures = 0 if now_s - self._started_s > _LIVED_S else self._failures + 1
            self.hopeless = self.hopeless or self._failures >= _HOPELESS
            self._next_s = now_s + min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self._failures)
        if self._process is None and now_s >= self._next_s and not self.is_sent_away:
            self._start(now_s)

    def news(self) -> str:
        """A sentence on what has befallen it since the last call; mostly empty."""
        news, self._news = self._news, ""
        return news

    def end(self) -> bool:
        """Let it look once more, send what it has, and end; call it until it says True: it has ended.

        An agent that does not run now, or has only just been started, still gets to look: it may be the only one that
        ever sees a short job.
        """
        if self._process is None and not (self._asked_to_end or self.hopeless or self.is_sent_away):
            self._start(time.monotonic())
        if not self.is_running():
            return True
        if not self._asked_to_end and self._process and _handles_sigterm(self._process.pid):
            self._asked_to_end = True
            self._process.terminate()
        return False

    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """End it by force if it still runs."""
        if self._process:
            if self._process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(1.0)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        if self._log:
            self._log.close()
        if self._log_path:
            with contextlib.suppress(OSError):
                if not self._log_path.stat().st_size:
                    self._log_path.unlink()

    def _last_said(self) -> str:
        """The sentence with which the agent ended, and how to mend it."""
        if self._log is None:
            return "the analyzer is of another job, so this machine is not watched"
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _MOST_SAID))
        said = self._log.read().decode(errors="replace").rpartition("whichrank: ")[2].strip()
        return "; to mend it: ".join(part.strip() for part in said.split("\n  mend:", 1))

    def _start(self, now_s: float) -> None:
        """In a session of its own: Ctrl-C in the terminal is meant for the job, and its last moments are to be seen."""
        self.starts += 1
        self._started_s = now_s
        try:
            self._process = subprocess.Popen(
                self._command,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log or subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            self._failures += 1
            self.hopeless = self.hopeless or self._failures >= _HOPELESS
            self._next_s = now_s + _LONGEST_PAUSE_S
