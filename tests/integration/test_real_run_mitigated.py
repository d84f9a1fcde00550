"""A real job with a rank that becomes slow: it gets fewer microbatches, and its share back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parent / "mitigated_program.py"
PATIENCE_S = 120.0


class Run:
    """A run of four replicas."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder = folder
        environment = os.environ | {"FOLDER": str(folder), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        whichrank = [sys.executable, "-m", "whichrank", "run", "--mitigate", mode, "--slow-window", "3"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [*whichrank, "--output", str(folder / "run"), "--", *torchrun, str(PROGRAM)],
                env=environment, stdout=output, stderr=output,
            )  # fmt: skip

    def lines(self) -> list[dict[str, Any]]:
        """What was written down of mitigations."""
        path = self.folder / "run" / "mitigations.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, (self.folder / "output").read_text()
            assert time.monotonic() < give_up, (self.lines(), (self.folder / "output").read_text())
            time.sleep(0.1)

    def become_slow(self) -> None:
        """Once it has run well for two windows."""
        self.until(lambda: (self.folder / "run" / "times.json").exists())
        time.sleep(6.0)
        (self.folder / "slow").touch()

    def finish(self) -> str:
        """Let the job end; what was printed."""
        (self.folder / "stop").touch()
        assert self.process.wait(PATIENCE_S) in (0, 3, 4), (self.folder / "output").read_text()
        return (self.folder / "output").read_text()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], Run]]:
    runs: list[Run] = []

    def start(mode: str) -> Run:
        runs.append(Run(tmp_path, mode))
        return runs[-1]

    yield start
    for run in runs:
        run.process.terminate()  # which torchrun hears, and ends its ranks
        run.process.wait(PATIENCE_S)


def test_slow_rank_gets_fewer_microbatches_and_its_share_back(started: Callable[[str], Run]) -> None:
    run = started("auto")
    run.become_slow()
    # THEN its replica computes fewer microbatches than before and than the others
    run.until(lambda: any(line["what"] == "measured" for line in run.lines()))
    made, measured = run.lines()[:2]
    assert (made["what"], made["level"], made["why"], made["before"]) == ("made", 2, "impact", [6] * 4)
    assert sum(made["after"]) == 24
    assert made["after"][1] in (2, 3)
    # AND iterations are about as short as that was said to make them
    assert measured["measured_s"] < 0.75 * measured["now_s"]
    # WHEN it is as quick as the others THEN all have as many
    (run.folder / "slow").unlink()
    run.until(lambda: any(line["level"] == 1 for line in run.lines()))
    back = next(line for line in run.lines() if line["level"] == 1)
    assert (back["why"], back["after"]) == ("relief", [6] * 4)
    output = run.finish()
    assert "mitigation 1: replica 0" in output
    assert "mitigation 1: all replicas compute as many microbatches again" in output


def whichrank(*arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "whichrank", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60).stdout


def test_nothing_is_done_before_somebody_says_yes(started: Callable[[str], Run]) -> None:
    run = started("ask")
    folder = str(run.folder / "run")
    run.become_slow()
    # THEN it is asked, and nothing is changed
    run.until(lambda: bool(run.lines()))
    time.sleep(2.0)
    (asked,) = run.lines()
    assert (asked["what"], asked["step"], asked["before"]) == ("asked", 1, [6] * 4)
    assert "it waits for a yes: whichrank mitigate apply 1" in whichrank("mitigate", "plan", folder)
    shown = json.loads(whichrank("watch", "--json"))["jobs"]
    (now,) = [job["mitigation"] for job in shown if job["output"] == folder]
    assert (now["mode"], now["level"], now["plan"]["waits"]) == ("ask", 1, True)
    # WHEN somebody says yes THEN it is done
    assert "replica 1 computes" in whichrank("mitigate", "apply", "1", folder)
    run.until(lambda: any(line["what"] == "measured" for line in run.lines()))
    assert "other shares of the work (step 1)" in whichrank("mitigate", "status", folder)
    # WHEN somebody wants it back THEN it is taken back, though the rank is slow still
    assert "since somebody wanted that" in whichrank("mitigate", "revert", "1", folder)
    output = run.finish()
    assert "to have it done: whichrank mitigate apply 1" in output
    # AND the incident and the report say so
    incidents = [json.loads(line) for line in (run.folder / "run" / "incidents.jsonl").read_text().splitlines()]
    assert any(one.get("where") == "replica 1, mitigation 1" for incident in incidents for one in incident["evidence"])
    page = run.folder / "page.html"
    whichrank("report", folder, "-o", str(page))
    assert "What was done about it" in page.read_text()


def below(pid: int, words: str) -> list[int]:
    """Processes below one, whose command has these words."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if words.encode() in Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" "):
                found.append(int(child))
            found += below(int(child), words)
    return found


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and bool(Path(f"/proc/{pid}/cmdline").read_bytes())


def how_it_ended(folder: Path) -> tuple[int, int, int]:
    """Iterations, those with uneven shares, and microbatches that all ranks computed."""
    iterations, uneven, computed = map(int, (folder / "ended").read_text().split())
    return iterations, uneven, computed


def test_shares_are_given_back_though_the_agent_was_killed_meanwhile(started: Callable[[str], Run]) -> None:
    run = started("auto")
    run.become_slow()
    run.until(lambda: any(line["what"] == "made" for line in run.lines()))
    (agent,) = below(run.process.pid, "whichrank agent")
    os.kill(agent, signal.SIGKILL)
    run.until(lambda: any(line["what"] == "measured" for line in run.lines()))
    (run.folder / "slow").unlink()
    run.until(lambda: any(line["level"] == 1 for line in run.lines()))
    run.finish()
    iterations, uneven, computed = how_it_ended(run.folder)
    assert uneven > 0
    assert computed == 24 * iterations


def test_job_goes_on_with_the_shares_that_it_has_when_the_run_is_killed(started: Callable[[str], Run]) -> None:
    run = started("auto")
    run.become_slow()
    run.until(lambda: any(line["what"] == "measured" for line in run.lines()))
    ranks = below(run.process.pid, PROGRAM.name)
    run.process.kill()
    run.process.wait()
    time.sleep(3.0)
    assert len(ranks) >= 4
    assert all(map(is_there, ranks))
    (run.folder / "stop").touch()
    give_up = time.monotonic() + PATIENCE_S
    while any(map(is_there, ranks)):
        assert time.monotonic() < give_up, (run.folder / "output").read_text()
        time.sleep(0.1)
    iterations, uneven, computed = how_it_ended(run.folder)
    assert uneven > 0
    assert computed == 24 * iterations
