"""Ordinary scripts under `whichrank run`, broken from outside: none of them was written for it.

One script per way of using torch.distributed: DDP, FSDP2, functional collectives, the same in a compiled graph,
subgroups, send/recv, pipelining, many operations in flight. Somebody who knows nothing but pids does the harm. Each job
meets two blows: a rank is stopped and goes on, and then one is killed, or falls asleep in the script's own code.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from watched import Watched, judge, preloaded

from whichrank.testbed.demo.outside import BLOWS

pytestmark = pytest.mark.integration

COMPILED = ("functional", "--compile", "aot_eager")
PLAN = [
    (("ddp",), "kill"),
    (("fsdp2",), "kill"),
    (("pipeline",), "kill"),
    (("in_flight",), "kill"),
    (("functional",), "doze"),
    (COMPILED, "doze"),
    (("groups",), "doze"),
    (("p2p",), "doze"),
]
AFTERMATH_S = 2.0
"""So long the others may fall with a rank that has died, and somebody else may be named for it."""


@pytest.mark.parametrize(("script", "second"), PLAN, ids=["-".join((*script, second)) for script, second in PLAN])
def test_who_was_struck_is_named_and_nobody_else(
    script: tuple[str, ...], second: str, tmp_path: Path, nursery: Path
) -> None:
    # GIVEN a script that runs under whichrank
    with Watched(tmp_path, preloaded(nursery, *script)) as job:
        # WHEN somebody stops one rank, after a start in which one may have compiled for long
        stopped = job.strike("stop", " ".join(script))
        start = len(job.words())

        # THEN it is named while the job hangs, with those that wait for it
        job.until(lambda: bool(job.alerts()), "an alert for the stopped rank")
        assert job.process.poll() is None
        assert job.alerts()[0].victims.count > 0

        # AND it recovers when the rank goes on
        os.kill(stopped.pid, signal.SIGCONT)
        job.until(lambda: job.alerts()[-1].status == "recovered", "its recovery")
        before = job.words()
        judge(stopped, before[start:], job.log())
        assert ("of 1 compiled graph" in job.said("stdout")) == (script == COMPILED)

        # WHEN the next blow falls
        struck = job.strike(second, " ".join(script), after_s=(0.5, 1.5))

        # THEN that rank is named, not those that wait for it or fall with it, also when all is over
        job.until(lambda: len({alert.id for alert in job.alerts()}) > 1, f"an alert after {second}")
        time.sleep(AFTERMATH_S)
        job.end()
        judge(struck, job.words()[len(before) :], job.log())


def test_every_script_is_struck_twice_and_every_blow_falls_four_times() -> None:
    from whichrank.testbed.demo import workloads

    scripts = {path.stem for path in Path(workloads.__path__[0]).glob("*.py")} - {"__init__"}
    assert {script[0] for script, _ in PLAN} == scripts
    assert set(BLOWS) == {"stop", "kill", "doze"}
    assert all(sum(second == blow for _, second in PLAN) >= 4 for blow in ("kill", "doze"))
