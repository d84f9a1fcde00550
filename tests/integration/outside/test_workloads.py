"""Ordinary scripts under `whichrank run`, broken from outside: none of them was written for it.

One script per way of using torch.distributed: DDP, FSDP2, functional collectives in a compiled function, subgroups,
send/recv, pipelining. A process that knows nothing but a pid does the harm.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whichrank.errors import RingFormatError
from whichrank.model.incident import Incident, decode_incident
from whichrank.ring.folder import job_folders
from whichrank.ring.reader import RingReader

RANKS = 4
LIMIT_S = 150.0
SEEN_AFTER_S = 2.0
"""The agent looks for new ranks twice a second."""
WORKLOADS = ("ddp", "fsdp2", "functional", "groups", "p2p", "pipeline")


class Run:
    """A workload under `whichrank run`, from the preloaded launcher."""

    def __init__(self, workload: str, folder: Path) -> None:
        self.folder = folder
        with (folder / "job.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "whichrank", "run", "--hang-timeout", "20", "--output", str(folder), "--"),
                    *(sys.executable, "-m", "whichrank.demo.launcher", "--nproc", str(RANKS), "--"),
                    *("-m", f"whichrank.demo.workloads.{workload}", "--steps", "100000"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def pid_of(self, rank: int, after_operations: int) -> int:
        """The pid of a rank once it has issued so many operations, and the agent has surely seen it.

        How a process ended can be told only of one that was seen before.
        """
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            for folder in job_folders():
                owner = folder.owner()
                if owner is None or owner.pid != self._process.pid:
                    continue
                for path in folder.rings():
                    try:
                        reader = RingReader(path)
                    except RingFormatError:
                        continue  # it is being made
                    header = reader.look().header[0]
                    reader.close()
                    age_s = (time.monotonic_ns() - int(header["created_monotonic_ns"])) / 1e9
                    if header["rank"] == rank and header["ordinal"] >= after_operations and age_s > SEEN_AFTER_S:
                        return int(header["pid"])
            assert self._process.poll() is None, self.log()
            time.sleep(0.1)
        raise AssertionError(f"rank {rank} did not get under way\n{self.log()}")

    def alerts(self) -> list[Incident]:
        """Alerts so far, every word of them."""
        path = self.folder / "incidents.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        words = [decode_incident(line) for line in lines if line.endswith(b"\n")]
        return [word for word in words if word.severity == "alert"]

    def first_alert(self) -> Incident:
        """Wait for it."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            if found := self.alerts():
                return found[0]
            time.sleep(0.1)
        raise AssertionError(f"no alert\n{self.log()}")

    def log(self) -> str:
        """What the job and whichrank have said."""
        return (self.folder / "job.log").read_text(errors="replace")[-4000:]

    def end(self) -> None:
        """Leave nothing behind."""
        os.killpg(self._process.pid, signal.SIGCONT)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        for folder in job_folders():
            owner = folder.owner()
            if owner is not None and owner.pid == self._process.pid:
                for path in folder.rings():
                    try:
                        os.kill(int(path.stem), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
        try:
            self._process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_stopped_rank_is_named_while_the_job_still_hangs(workload: str, tmp_path: Path) -> None:
    # GIVEN a script that runs under whichrank
    run = Run(workload, tmp_path)
    try:
        victim = WORKLOADS.index(workload) % RANKS
        pid = run.pid_of(victim, after_operations=60)

        # WHEN somebody stops one rank
        os.kill(pid, signal.SIGSTOP)

        # THEN the first alert names it, and why
        alert = run.first_alert()
        assert [c.rank for c in alert.culprits] == [victim], f"{alert}\n{run.log()}"
        assert alert.reason == "stopped"
        assert alert.victims.count > 0

        # AND it recovers when the rank goes on
        os.kill(pid, signal.SIGCONT)
        until = time.monotonic() + LIMIT_S
        while run.alerts()[-1].status != "recovered" and time.monotonic() < until:
            time.sleep(0.1)
        assert run.alerts()[-1].status == "recovered", run.log()
        assert {c.rank for word in run.alerts() for c in word.culprits} == {victim}
    finally:
        run.end()


@pytest.mark.parametrize("workload", ["ddp", "fsdp2", "pipeline"])
def test_a_killed_rank_is_named_and_its_victims_are_not(workload: str, tmp_path: Path) -> None:
    # GIVEN a script that runs under whichrank
    run = Run(workload, tmp_path)
    try:
        victim = (WORKLOADS.index(workload) + 1) % RANKS
        pid = run.pid_of(victim, after_operations=60)

        # WHEN somebody kills one rank, and the others fall with it
        os.kill(pid, signal.SIGKILL)

        # THEN it alone is named
        run.first_alert()
        time.sleep(2)
        assert {c.rank for word in run.alerts() for c in word.culprits} == {victim}, run.log()
        assert run.alerts()[0].cause == "process_exit"
        assert run.alerts()[0].reason == "signal"
    finally:
        run.end()
