"""Real jobs, recorded: every batch that an agent reported of a small Gloo job with a fault, and the truth beside it.

A recording does not depend on the analyzer: nobody answers the agent with more than a credit. It is kept in the cache
of pytest under a hash of all that made it, so that only the first run after a change of sensors, agent or job takes
long.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from whichrank.agent.agent import Agent
from whichrank.model.commands import Reply
from whichrank.model.telemetry import Batch
from whichrank.ring.folder import JobFolder
from whichrank.testbed.demo.injector import Injector
from whichrank.testbed.demo.layout import Layout
from whichrank.wire.inprocess import InProcessAnalyzerEnd

ROOT = Path(__file__).parents[3]
MADE_BY = (
    "native/src", "native/include", "src/whichrank/agent", "src/whichrank/testbed/demo", "src/whichrank/ring",
    "src/whichrank/model/rows.py", "src/whichrank/model/telemetry.py", "src/whichrank/sensors", __file__,
)  # fmt: skip
HANGS_S = 3.0
HEALTHY_S = 10.0
START_LIMIT_S = 90.0
AT_ONCE = 2


@dataclass(frozen=True)
class Case:
    """What is recorded."""

    fault: str
    layout: str
    seed: int = 1
    variant: str | None = None


CASES = {
    "none": Case("none", "tp2-pp2"),
    "stop": Case("stop", "tp2-pp2"),
    "stop-in-op": Case("stop-in-op", "tp2-dp2"),
    "sleep": Case("sleep", "tp2-pp2", 3),
    "kill": Case("kill", "tp2-dp2", 2),
    "raise": Case("raise", "tp2-pp2", 4, "peers-exit"),
    "wrong-shape": Case("wrong-shape", "tp2-dp2", 5, "larger"),
    "wrong-op": Case("wrong-op", "tp2-pp2", 6, "broadcast"),
    "skip-op": Case("skip-op", "tp2-dp2", 7, "equal"),
}


class Reported(msgspec.Struct, frozen=True):
    """A batch and when it came, CLOCK_MONOTONIC of the machine that recorded."""

    arrival_ns: int
    batch: Batch


class Recording(msgspec.Struct, frozen=True):
    """One job."""

    case: str
    ranks: int
    truth: dict[str, Any] | None
    """`whichrank.testbed.demo.plan.Truth` as a dictionary; None for a healthy job."""
    reported: list[Reported]

    @property
    def culprits(self) -> frozenset[int]:
        """Ranks that may be named."""
        named = self.truth["culprits"] if self.truth else ()
        return frozenset(int(r) for r in named)

    @property
    def struck_ns(self) -> int:
        """When the fault was done; the end of a healthy job."""
        return int(self.truth["at_monotonic_ns"]) if self.truth else self.reported[-1].arrival_ns


class Recorder:
    """Records cases, all from one process that has torch loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forker: subprocess.Popen[str] | None = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._forker is not None:
            assert self._forker.stdin
            self._forker.stdin.close()
            self._forker.wait(20)
            assert self._forker.stdout
            self._forker.stdout.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._forker is None:
            environ = {
                name: value for name, value in os.environ.items() if name not in ("WHICHRANK_JOB", "WHICHRANK_DIR")
            }
            self._forker = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "programs" / "forker.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
            )
        assert self._forker.stdin
        assert self._forker.stdout
        return self._forker.stdin, self._forker.stdout

    def record(self, name: str) -> Recording:
        """Run a job until its fault has shown, or for some seconds if it is healthy."""
        case = CASES[name]
        ranks = Layout.parse(case.layout).world_size
        orders, answers = self._pipes()
        folder = JobFolder.create(f"recorded-{name}", owner_pid=os.getpid(), base=self._folder / "rings")
        end = InProcessAnalyzerEnd()
        agent = Agent(folder, end.connect(), stay=True)
        injector = Injector(case.fault, ranks, case.seed, case.layout, case.variant)
        injector.start()
        order = {
            "env": {"WHICHRANK_JOB": folder.job, "WHICHRANK_DIR": str(folder.path), **injector.env()},
            "nproc": ranks,
            "command": [*injector.job_command(), "--layout", case.layout],
            "log": str(self._folder / f"{name}.log"),
        }
        orders.write(json.dumps(order) + "\n")
        orders.flush()
        launcher = int(answers.readline())
        ended = threading.Event()
        waiter = threading.Thread(target=lambda: (answers.readline(), ended.set()))
        waiter.start()
        poller = threading.Thread(target=agent.run)
        poller.start()
        reported: list[Reported] = []

        def pump() -> None:
            time.sleep(0.005)
            for batch, is_new in end.receive():
                reported.append(Reported(time.monotonic_ns(), batch))
                end.reply(batch.agent, Reply(4, batch.sequence, resend=is_new and batch.sequence > 1))

        try:
            deadline_s = time.monotonic() + START_LIMIT_S
            done_s = float("inf")
            while not ended.is_set() and time.monotonic() < min(deadline_s, done_s):
                pump()
                if done_s == float("inf") and self._is_done(injector):
                    done_s = time.monotonic() + (HEALTHY_S if injector.fault.healthy else HANGS_S)
            if ended.is_set():  # let the agent see the ends of all processes
                quiet_s = time.monotonic() + 1.0
                while time.monotonic() < quiet_s:
                    pump()
            truth = injector.truth()
            agent.stop()
            while poller.is_alive():
                pump()
            pump()
        finally:
            for pid in injector.pids().values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(launcher, signal.SIGTERM)
            injector.close()
            waiter.join()
            agent.close()
        assert injector.error is None
        assert truth is not None or injector.fault.healthy, (self._folder / f"{name}.log").read_text()
        return Recording(name, ranks, asdict(truth) if truth else None, reported)

    @staticmethod
    def _is_done(injector: Injector) -> bool:
        if injector.fault.healthy:
            return min(injector.progress().values(), default=0) >= 5
        return injector.truth() is not None


def fingerprint() -> str:
    """A hash of all sources that a recording depends on."""
    digest = hashlib.sha256()
    for made_by in MADE_BY:
        place = ROOT / made_by
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.suffix in (".py", ".c", ".cpp", ".h"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _record(here: Path, names: list[str]) -> None:
    with Recorder(here) as recorder:
        for name in names:
            path = here / f"{name}.msgpack"
            partial = path.with_suffix(".partial")
            partial.write_bytes(msgspec.msgpack.encode(recorder.record(name)))
            partial.replace(path)


def load(cache: Path, names: list[str]) -> dict[str, Recording]:
    """Recordings from the cache; those that it has not are made."""
    here = cache / fingerprint()
    here.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not (here / f"{name}.msgpack").exists()]
    with ThreadPoolExecutor(AT_ONCE) as pool:  # jobs mostly wait
        list(pool.map(lambda some: _record(here, some), (missing[k::AT_ONCE] for k in range(AT_ONCE))))
    decoder = msgspec.msgpack.Decoder(Recording)
    return {name: decoder.decode((here / f"{name}.msgpack").read_bytes()) for name in names}
