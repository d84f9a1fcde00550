"""One trial: a real job under `whichrank run`, a fault from the injector, and the verdict against the truth.

The job is watched exactly as a user's would be: the command is `whichrank run`, what is judged is its
`incidents.jsonl`. The truth stays in this process. Timeouts are shorter than the defaults so that a trial takes
seconds; every result carries them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from whichrank.agent.stacks import read_stacks
from whichrank.errors import UsageError, WhichrankError
from whichrank.model.incident import Incident, decode_incident
from whichrank.testbed.bench.judge import SLACK, Ran, agrees, is_too_small, judge, reason_agrees
from whichrank.testbed.bench.launch import Launch
from whichrank.testbed.bench.nursery import Nursery
from whichrank.testbed.bench.possible import possible
from whichrank.testbed.bench.setup import HANG_TIMEOUT_S, Result, Setup, known_faults, require_means
from whichrank.testbed.demo.fault import Fault
from whichrank.testbed.demo.injector import Injector
from whichrank.testbed.demo.layout import draw_layout
from whichrank.testbed.demo.plan import Truth
from whichrank.testbed.demo.slow import SLOW
from whichrank.testbed.lab.box import Lab, find, occupants
from whichrank.testbed.lab.network import Network
from whichrank.testbed.lab.programs import PROGRAMS, Program
from whichrank.testbed.lab.topology import Topology

HEALTHY_S = 20.0
HEALTHY_IN_LAB_S = 16.0
"""Healthy jobs train for so long; by as much longer where a node joins late."""
START_LIMIT_S = 120.0
AFTER_ALERT_S = 3.0
AT_LEISURE_S = 1.5 * HANG_TIMEOUT_S
"""One seed in five of the demo, and what others hear in the lab, is watched so long after its alert: what is said when
patience ends must be right too."""
LEISURELY_SEEDS = 5
VALIDATED_WITHIN_S = 30.0
"""After an alert, what it names has been validated, or is not: a pause lasts ten seconds at most."""
VALIDATIONS_FILE = "validations.jsonl"
WINDOWS_OF_OTHERS = 2.6
"""Two whole ones, and a part of one before."""
WINDOWS_OF_HEALTHY = 3.5
"""What others may say of a job that nothing is done to takes them one window for what is usual, and two more."""
JOINS_AT = 5
"""Iterations of the other nodes, before the last one joins."""
JOB_HAS_SECONDS = "whichrank.testbed.demo.job"
STACKS_NAME = "stacks.json"
"""The main threads of all ranks at the end of a hang, as somebody would read them by hand."""
_HANGS = ("hang", "hang-or-abort", "slow-then-hang", "cut")


class Trial:
    """Runs one trial in a folder of its own.

    Args:
        setup: What to run.
        folder: Where incidents and the job's output go.
        say: Reported what happens, for people.
        afterwards: Called with the network when the job has ended, while what was done to the network still is.
        nursery: Socket of one for preloaded launchers; several nodes without one share their own.
    """

    def __init__(
        self, setup: Setup, folder: Path, say: Callable[[str], None] = lambda _: None,
        afterwards: Callable[[Network], None] | None = None, nursery: Path | None = None,
    ) -> None:  # fmt: skip
        faults = known_faults()
        if setup.fault not in faults:
            raise UsageError(
                f"there is no fault '{setup.fault}'", where=", ".join(sorted(faults)), mend="whichrank demo --list"
            )
        self.setup = setup
        self._program = _program(setup.workload)
        fault = _on(faults[setup.fault], self._program)
        self._lab = find(setup.lab) if setup.lab else None
        own = setup.topology or (Topology(fault.nodes) if fault.nodes > 1 else None)
        self._topology = self._lab.file.topology if self._lab else own
        self._nodes = self._topology.nodes if self._topology else 1
        rate, command = (self._lab.file.rate, "whichrank lab up") if self._lab else (setup.rate, "")
        self.fault = possible(fault, self._topology, rate, setup.variant, command)
        require_means(self.fault)
        if setup.ranks % self._nodes:
            what = f"{self._nodes} nodes have equally many ranks each, and {setup.ranks} cannot be shared out so"
            raise UsageError(what, mend=f"--ranks {self._nodes * max(1, round(setup.ranks / self._nodes))}")
        self.folder = folder
        self._say = say
        self._afterwards = afterwards
        self._nursery = nursery
        self._alert_at_s: float | None = None
        self._validated_at_s: float | None = None
        self._joined: list[subprocess.Popen[bytes]] = []
        self._layout = setup.layout or self._drawn_layout()
        self._incidents_path = folder / "incidents.jsonl"

    def _drawn_layout(self) -> str:
        """By seed and fault, so that each fault meets several; some faults need two kinds of groups."""
        if self._program:
            return self._program.layout(self.setup.ranks).name
        if self.fault.layouts:
            return self.fault.layouts[self.setup.seed % len(self.fault.layouts)]
        return draw_layout(self.setup.ranks, self.setup.seed + 1000 * len(self.setup.fault)).name

    def run(self) -> Result:
        """Run it to the end and judge."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._nursery or self._nodes == 1 or self.setup.launcher != "preloaded":
            return self._run()
        with Nursery() as nursery:  # one for all nodes
            self._nursery = nursery.path
            return self._run()

    def _run(self) -> Result:
        if self._lab:
            if not occupants(self._lab.file):
                self._restore(self._lab)
            try:
                return self._run_on(self._lab.network)
            finally:
                self._lab.network.undo()
        lab = Lab.make(self._topology, self.setup.rate) if self._topology else None
        try:
            return self._run_on(lab.network if lab else None)
        finally:
            if lab:
                lab.close()

    @staticmethod
    def _restore(lab: Lab) -> None:
        """Undo what a run that was killed did to it."""
        try:
            lab.network.restore()
        except (OSError, subprocess.CalledProcessError) as error:
            name = lab.file.name
            what = f"the lab '{name}' is damaged: what it was made of is not all there"
            raise UsageError(what, mend=f"whichrank lab down {name}, and whichrank lab up --name {name}") from error

    def _run_on(self, nodes: Network | None) -> Result:
        has_layout = self._is_demo_job or self._program is not None
        injector = Injector(
            self.fault, self.setup.ranks, self.setup.seed, self._layout if has_layout else None,
            variant=self.setup.variant or None, hold_s=0.7 * self.setup.hang_timeout_s, nodes=nodes,
            quiet_s=self.setup.known_s,
        )  # fmt: skip
        process: subprocess.Popen[bytes] | None = None
        try:
            injector.start()
            with (self.folder / "job.log").open("wb") as log:
                launch = self._launch(injector, nodes)
                environment = launch.environment({**injector.env(), **self.setup.environment()})
                process = self._start(launch.command(0), environment, log)
                for number in range(1, self._nodes):
                    if self.fault.is_elastic and number == self._nodes - 1:
                        self._wait_for_others(process, injector)
                    self._joined.append(self._start(launch.command(number), environment, log))
                self._watch(process, injector)
                self._end(process, injector)
            if self._afterwards and nodes:
                self._afterwards(nodes)
        finally:
            if process is not None and process.poll() is None:
                self._end(process, injector)
            injector.close()
            shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        is_timed = self.fault.name in SLOW or self.fault.is_slow
        times = (injector.longer(), injector.longer_at_most()) if is_timed else (None, None)
        result = self._judge(injector.truth(), *times)
        went_on = injector.went_on(self.setup.hang_timeout_s / 2) if self.fault.variants[0].effect == "cut" else None
        error = str(injector.error or "")
        return replace(result, pace=injector.pace(), went_on=went_on, error=error)

    # ---- running ---------------------------------------------------------------------------------------------------

    def _start(self, command: list[str], environment: dict[str, str], log: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
        )

    def _launch(self, injector: Injector, nodes: Network | None) -> Launch:
        job = injector.job_command()
        if self._is_demo_job or (self._program and self._program.has_layout):
            job += ["--layout", self._layout]
        if self._is_healthy and (self._is_demo_job or self._program):
            job += ["--seconds", str(self._healthy_s)]
        job += self.setup.job_args
        options = ["--hang-timeout", str(self.setup.hang_timeout_s), "--slow-window", str(self.setup.slow_window_s)]
        options += ["--record"] if self.setup.record else []
        options += ["--validate", "auto"] if self.setup.validates else []
        is_elastic = self.fault.is_elastic
        return Launch(
            job, self.setup.ranks, self.folder, self.setup.launcher, options, nodes, is_elastic, self._nursery
        )

    @staticmethod
    def _wait_for_others(process: subprocess.Popen[bytes], injector: Injector) -> None:
        """Until all nodes but the last train."""
        ready_s = time.monotonic() + START_LIMIT_S
        while max(injector.progress().values(), default=0) < JOINS_AT and time.monotonic() < ready_s:
            if process.poll() is not None:
                return
            time.sleep(0.1)

    @property
    def _is_demo_job(self) -> bool:
        return self.fault.module == JOB_HAS_SECONDS

    @property
    def _is_healthy(self) -> bool:
        return self.fault.kind == "healthy"

    @property
    def _healthy_s(self) -> float:
        """So long a healthy job trains."""
        usual_s = HEALTHY_IN_LAB_S if self._program else HEALTHY_S
        longer_s = WINDOWS_OF_HEALTHY * self.setup.slow_window_s if self.setup.at_leisure else usual_s
        return longer_s + 2 * self.setup.found_s + (usual_s if self.fault.is_elastic else 0.0)

    @property
    def _patience_s(self) -> float:
        """So long after the fault nothing more is to come."""
        if self.fault.is_slow:
            return 2.5 * self.setup.slow_window_s + self.setup.found_s
        return 3 * self.setup.hang_timeout_s + 10

    @property
    def _leisure_s(self) -> float:
        """So long after the fault methods of others may need."""
        if not self.setup.at_leisure:
            return 0.0
        return WINDOWS_OF_OTHERS * self.setup.slow_window_s if self.fault.is_slow else AT_LEISURE_S

    def _watch(self, process: subprocess.Popen[bytes], injector: Injector) -> None:
        """Until the verdict stands, or there is nothing more to come."""
        started_s = time.monotonic()
        alert_s = reported_s = None
        is_long = self._program is None and self.setup.seed % LEISURELY_SEEDS == 0
        after_s = AT_LEISURE_S if is_long else AFTER_ALERT_S
        if self.fault.is_slow:
            after_s = max(after_s, self.setup.slow_window_s / 2)  # a reason may need more snapshots
        while process.poll() is None:
            time.sleep(0.1)
            now_s = time.monotonic()
            truth = injector.truth()
            if truth and reported_s is None:
                reported_s = now_s
                self._say(f"fault '{self.setup.fault}' is done; waiting for the verdict")
            if injector.has_given_up:
                self._say(f"fault '{self.setup.fault}' could not be done")
                return
            self._look_for_validation()
            if alert_s is None and self._sees_alert() and self._all_reported(truth):
                alert_s = now_s
            if self._is_healthy:
                over = now_s - started_s > START_LIMIT_S + self._healthy_s
            elif reported_s is None:  # an alert before anything was done is to be judged by what is done then
                over = now_s - started_s > START_LIMIT_S
            elif alert_s is not None:
                over = now_s - alert_s > after_s and now_s - reported_s > self._leisure_s
                over &= not self._waits_for_validation(now_s - alert_s)
            else:
                over = now_s - reported_s > self._patience_s
            if over:
                return
        self._sees_alert()  # the last word of a job that has ended by itself

    def _all_reported(self, truth: Truth | None) -> bool:
        """Are there as many alerts as there are slow ranks and slow links?"""
        if self.fault.variants[0].effect == "slow-then-hang":
            return any(i.severity == "alert" and i.kind != "slow" for i in self.incidents())
        expected = len(truth.culprits) + truth.slows_links if truth and self.fault.is_slow else 1
        return sum(i.severity == "alert" for i in self.incidents()) >= expected

    def _sees_alert(self) -> bool:
        seen = any(i.severity == "alert" for i in self.incidents())
        if seen and self._alert_at_s is None:
            self._alert_at_s = time.time()
        return seen

    def _look_for_validation(self) -> None:
        if self.setup.validates and self._validated_at_s is None and self._validation() is not None:
            self._validated_at_s = time.time()

    def _waits_for_validation(self, since_alert_s: float) -> bool:
        wanted = self.setup.validates and self._validated_at_s is None
        return wanted and since_alert_s < VALIDATED_WITHIN_S

    def _validation(self) -> dict[str, Any] | None:
        """What the first one said, None if there is none yet."""
        try:
            content = (self.folder / VALIDATIONS_FILE).read_bytes()
        except FileNotFoundError:
            return None
        first, ended, _ = content.partition(b"\n")
        return msgspec.json.decode(first, type=dict[str, Any]) if ended else None

    def _end(self, process: subprocess.Popen[bytes], injector: Injector) -> None:
        """End the job: launchers first, then whoever does not obey."""
        if self.setup.at_leisure and self.fault.variants[0].effect in _HANGS and process.poll() is None:
            (self.folder / STACKS_NAME).write_bytes(msgspec.json.encode(_stacks_of(injector.pids())))
        for other in self._joined:
            if other.poll() is None:
                other.send_signal(signal.SIGTERM)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.7)
        if process.poll() is None:
            for pid in injector.pids().values():  # those that are still there
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for one in (process, *self._joined):
            try:
                one.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()
        self._joined.clear()

    def incidents(self) -> list[Incident]:
        """What has been reported so far, the last word on each."""
        if not self._incidents_path.exists():
            return []
        latest: dict[str, Incident] = {}
        for line in self._incidents_path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                incident = decode_incident(line)
                latest[incident.id] = incident
        return list(latest.values())

    def _every_word(self) -> list[Incident]:
        lines = self._incidents_path.read_bytes().splitlines() if self._incidents_path.exists() else []
        return [decode_incident(line) for line in lines if line]

    def _ran(self) -> Ran:
        try:
            return msgspec.json.decode((self.folder / "job.json").read_bytes(), type=Ran)
        except (OSError, msgspec.DecodeError):
            return Ran()

    # ---- judging ---------------------------------------------------------------------------------------------------

    def _judge(self, truth: Truth | None, longer: float | None, at_most: float | None) -> Result:
        words, incidents = self._every_word(), self.incidents()
        alerts = [i for i in incidents if i.severity == "alert"]
        to_alert = located = to_validated = None
        at = datetime.fromisoformat(truth.at_utc) if truth else None
        if at and self._validated_at_s is not None:
            to_validated = round(self._validated_at_s - at.timestamp(), 3)
        if at and alerts:
            if self._alert_at_s is not None:  # else it came only when the job was being ended
                to_alert = round(self._alert_at_s - at.timestamp(), 3)
            place = [(i.located - at).total_seconds() for i in alerts if i.located]
            located = round(min(place), 3) if place else None
        patience_s = self.setup.slow_window_s * 2 / SLACK if self.fault.is_slow else self.setup.hang_timeout_s
        verdict = judge(self.fault, truth, words, self._ran(), to_alert, patience_s)
        too_small = truth is not None and is_too_small(truth.effect, longer, at_most)
        return Result(
            fault=self.setup.fault,
            seed=self.setup.seed,
            setup={**asdict(self.setup), "layout": self._layout},
            truth=asdict(truth) if truth else None,
            incidents=[_plain(i) for i in incidents],
            verdict=verdict,
            agree=agrees(verdict, too_small=too_small),
            reason_agrees=reason_agrees(truth, alerts),
            seconds_to_alert=to_alert,
            seconds_to_located=located,
            validation=self._validation() if self.setup.validates else None,
            seconds_to_validated=to_validated,
            longer=None if longer is None else round(longer, 3),
            longer_at_most=None if at_most is None else round(at_most, 3),
            too_small=too_small,
            log=str(self.folder / "job.log"),
        )


def _stacks_of(pids: Mapping[int, int]) -> dict[int, list[str]]:
    """Frames of the main threads, innermost first, of the ranks that can be read."""

    def frames(pid: int) -> list[str] | None:
        try:
            return next((stack.frames for stack in read_stacks(pid) if stack.main), None)
        except WhichrankError:
            return None

    with ThreadPoolExecutor(len(pids) or 1) as pool:
        found = dict(zip(pids, pool.map(frames, pids.values()), strict=True))
    return {rank: stack for rank, stack in found.items() if stack is not None}


def _program(workload: str) -> Program | None:
    if workload and workload not in PROGRAMS:
        raise UsageError(f"there is no workload '{workload}'", where=", ".join(PROGRAMS), mend="whichrank lab list")
    return PROGRAMS.get(workload)


def _on(fault: Fault, program: Program | None) -> Fault:
    """The fault, done to this program."""
    return replace(fault, module=program.module, job_args=program.args, layouts=()) if program else fault


def _plain(incident: Incident) -> dict[str, Any]:
    plain = msgspec.to_builtins(incident)
    assert isinstance(plain, dict)
    return plain
