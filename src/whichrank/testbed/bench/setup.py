"""What a trial is run with, and what comes of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Any

from whichrank.errors import UsageError
from whichrank.sensors.steps import SWITCH
from whichrank.testbed.bench.judge import Verdict
from whichrank.testbed.bench.launch import Launcher
from whichrank.testbed.demo.fault import Fault
from whichrank.testbed.demo.faults import CATALOGUE
from whichrank.testbed.demo.injector import Pace
from whichrank.testbed.demo.matrix import MATRIX
from whichrank.testbed.demo.slow import SLOW
from whichrank.testbed.demo.strikes import cpu_cgroup
from whichrank.testbed.lab.faults import LAB
from whichrank.testbed.lab.namespaces import may_mend
from whichrank.testbed.lab.topology import Topology

_PROBE = "job-"
"""What a control group begins with that is made to see that it can be."""
HANG_TIMEOUT_S = 8.0
NOTICE_MIN_S = 4.0
SLOW_WINDOW_S = 10.0
"""Shorter than the defaults, so that a trial takes seconds."""
KNOWN_WINDOWS = 2.0
"""Windows for which a job runs well before it is made slow, where that is to be validated: what its iterations take is
known then."""


@dataclass(frozen=True)
class Setup:
    """What a trial is run with."""

    fault: str
    ranks: int = 8
    seed: int = 0
    launcher: Launcher = "preloaded"
    layout: str = ""
    variant: str = ""
    hang_timeout_s: float = HANG_TIMEOUT_S
    notice_min_s: float = NOTICE_MIN_S
    slow_window_s: float = SLOW_WINDOW_S
    job_args: tuple[str, ...] = ()
    workload: str = ""
    """One of the lab's instead of the fault's own program."""
    topology: Topology | None = None
    """Of a lab; without one the ranks are on this machine, or on as many nodes as the fault needs."""
    rate: str = ""
    """Of its cables."""
    lab: str = ""
    """The name of one that is up, instead: it stays, with others that run there."""
    record: bool = False
    """Keep the telemetry, for `whichrank replay`."""
    quiet_s: float = 0.0
    """That the job runs before anything is done to it, beside some iterations."""
    at_leisure: bool = False
    """Go on after the fault for as long as others are patient: a hang timeout, or windows that recur."""
    validates: bool = False
    """Training may be paused to prove what is slow, and the trial waits for what comes of it."""
    has_steps: bool = True
    """The ranks note optimizer steps; without them iterations are found by operations."""

    @property
    def known_s(self) -> float:
        """Seconds for which nothing is done to the job."""
        return max(self.quiet_s, KNOWN_WINDOWS * self.slow_window_s * self.validates, self.found_s)

    @property
    def found_s(self) -> float:
        """Seconds more in which iterations are found that no optimizer step marks: it takes a dozen of them."""
        return 0.0 if self.has_steps else self.slow_window_s

    @property
    def switched(self) -> str:
        """What is switched off in the ranks, as the end of a sentence."""
        return "" if self.has_steps else ", without optimizer steps"

    def environment(self) -> dict[str, str]:
        """The variables that the job is started with."""
        switch = {} if self.has_steps else {SWITCH: "0"}
        return {"WHICHRANK_NOTICE_MIN_S": str(self.notice_min_s), **switch}


@dataclass(frozen=True)
class Result:
    """What came of it."""

    fault: str
    seed: int
    setup: dict[str, Any]
    truth: dict[str, Any] | None
    incidents: list[dict[str, Any]]
    verdict: Verdict
    agree: bool
    reason_agrees: bool | None
    seconds_to_alert: float | None
    """From the fault to the first alert in the incident file (looked at every 0.1 s)."""
    seconds_to_located: float | None
    longer: float | None = None
    """By which share iterations have taken longer since the fault, by the clock of the injector."""
    longer_at_most: float | None = None
    """By which share what was done makes them longer at the most, None if that is not known."""
    too_small: bool = False
    """What was done makes the job slower, and by less than what is reported: see `judge.is_too_small`."""
    pace: Pace | None = None
    """Of iterations before the fault."""
    went_on: bool | None = None
    """Iterations began long after nothing came through any more on some ways; None for other faults."""
    validation: dict[str, Any] | None = None
    """What the first one said that was made; None: none was."""
    seconds_to_validated: float | None = None
    """From the fault to then (looked at every 0.1 s)."""
    error: str = ""
    """Why nothing was done to the job, if that is known."""
    log: str = field(default="", compare=False)


def has_means(fault: Fault) -> bool:
    """Whether what a fault is done with is here."""
    try:
        require_means(fault)
    except UsageError:
        return False
    return True


def require_means(fault: Fault) -> None:
    """See that what a fault is done with is here: a program that is installed, a control group that can be made.

    Raises:
        UsageError: It is not.
    """
    if fault.tool and shutil.which(fault.tool) is None:
        what = f"the fault '{fault.name}' needs `{fault.tool}`, which is not installed"
        raise UsageError(what, mend="install it (Debian: apt-get install nftables)")
    if fault.needs_cgroup:
        try:
            cpu_cgroup(1.0, _PROBE).close()
        except OSError as error:
            what = f"the fault '{fault.name}' needs a control group, and none can be made here: {error}"
            raise UsageError(what, mend=may_mend()) from error


def demo_faults() -> dict[str, Fault]:
    """Faults that the demo's job can have, by name: the demo's, those of the matrices and the slow ones."""
    return {**CATALOGUE, **MATRIX, **SLOW}


def lab_faults() -> dict[str, Fault]:
    """Faults that the lab's jobs can have, by name: those of the matrices have programs of their own."""
    return {**CATALOGUE, **SLOW, **LAB}


def known_faults() -> dict[str, Fault]:
    """All of them."""
    return {**demo_faults(), **LAB}
