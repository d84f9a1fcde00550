"""How long one location takes while a simulated job stands still, and whether what it says is right.

A location is one answer to `what_hangs` on a picture of the job, as each tick asks it; one core, no I/O. Each halt of
`sim.halts` is reported for some seconds, as agents do, until the nodes that have fallen silent were probed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from whichrank.analyzer import Analyzer
from whichrank.analyzer.hangs import ASK_AFTER_S
from whichrank.config import AnalyzerConfig
from whichrank.hang.case import LISTED
from whichrank.hang.order import what_hangs
from whichrank.model.commands import ProbePaths
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause
from whichrank.model.telemetry import Batch
from whichrank.testbed.bench.figures import Figure, figure
from whichrank.testbed.bench.scale.jobs import SHORT, job_of
from whichrank.testbed.sim.halts import Halt, Where
from whichrank.testbed.sim.run import Run, Times
from whichrank.testbed.sim.telemetry import Agents

SIZES: Final = (64, 512, 4_096, 65_536)
LIMITS_MS: Final = {4_096: 20.0, 65_536: 300.0}
"""What one location may take, milliseconds, by ranks (DESIGN section 7)."""
LOCATIONS: Final = 20
WARM_ITERATIONS: Final = 8
"""Until what a rank does in an iteration is known, so that what it leaves out can be seen."""
REPORTS_S: Final = (1.0, 2.0, 3.0, 4.0)
"""Seconds after the halt at which agents report: those of silent nodes are probed, and it is heard what came of it."""
AT_ONCE: Final = 256
"""Batches that a server takes at one time, at most (`wire.zmq_transport`)."""
CAUSES: Final[dict[Where, tuple[Cause, ...]]] = {
    "tp": (Cause.NOT_ENTERED,),
    "world": (Cause.NOT_ENTERED,),
    "deadlock": (Cause.DEADLOCK,),
    "lost message": (Cause.TRANSPORT, Cause.UNKNOWN),
    "left out": (Cause.INCONSISTENT, Cause.DEADLOCK),
    "dead node": (Cause.PROCESS_EXIT,),
    "lost node": (Cause.NODE_LOST,),
    "silent node": (Cause.UNKNOWN,),
}
"""What is right to say of each halt."""


@dataclass(frozen=True)
class Standing:
    """A job that stands still, and what an analyzer knows of it.

    Attributes:
        halt: Where it stopped.
        run: The job.
        analyzer: Was told all of it.
        now_s: The time of the analyzer.
    """

    halt: Halt
    run: Run
    analyzer: Analyzer
    now_s: float

    def locate(self) -> Finding | None:
        """What keeps the blocked ranks."""
        return what_hangs(self.analyzer.case, self.analyzer.store.picture(self.now_s), ASK_AFTER_S)

    def is_right(self, finding: Finding | None) -> bool:
        """Whether the cause is right, and the ranks at fault are named, all of them and no others."""
        if finding is None or finding.cause not in CAUSES[self.halt.where]:
            return False
        candidates = {blame.rank for blame in finding.candidates}
        if self.halt.where == "silent node" and self.halt.rank not in candidates:
            return False
        if self.halt.where == "deadlock" and len(finding.evidence) < min(LISTED, len(self.halt.ring(self.run))):
            return False
        return finding.names == self.halt.at_fault(self.run)


def stand(where: Where, ranks: int) -> Standing:
    """Simulate a job of this size until it stands still, and tell it to an analyzer."""
    run = job_of(ranks, SHORT, Times())
    halt = Halt(where, ranks // 3, WARM_ITERATIONS + 1)
    halt.install(run)
    agents, analyzer = Agents(run), Analyzer(AnalyzerConfig(), "simulated", 0.0)
    for _ in range(WARM_ITERATIONS):
        batches = list(agents.report([run.iterate()]))
        feed(analyzer, batches, batches[0].sent_realtime_ns / 1e9)
    last = run.iterate()
    halt.correct(run, last)
    stood_s = max(float(max(ops["t_issue_ns"].max(), ops["t_end_ns"].max())) for ops in last.ops) / 1e9
    halt.report(run, agents, stood_s)
    iterations = [last]
    for after_s in REPORTS_S:
        now_s = stood_s + after_s
        feed(analyzer, list(agents.report(iterations, now_s)), now_s)
        standing, iterations = Standing(halt, run, analyzer, now_s), []
        standing.locate()
        for node in range(ranks // 8):
            for order in analyzer.orders(f"node{node}:1"):
                if isinstance(order, ProbePaths):
                    agents.probe(node, order.addresses, now_s)
    return standing


def measure(sizes: Sequence[int], halts: Sequence[Where], locations: int = LOCATIONS) -> Iterator[Figure]:
    """The time of one location and of the picture that it needs, by size and halt."""
    for ranks in sizes:
        for where in halts:
            standing = stand(where, ranks)
            right = standing.is_right(standing.locate())
            picture = standing.analyzer.store.picture(standing.now_s)
            located_ms, taken_ms = list[float](), list[float]()
            for _ in range(locations):
                gc.collect()
                begin_s = time.perf_counter()
                what_hangs(standing.analyzer.case, picture, ASK_AFTER_S)
                located_ms.append(1e3 * (time.perf_counter() - begin_s))
                begin_s = time.perf_counter()
                standing.analyzer.store.picture(standing.now_s)
                taken_ms.append(1e3 * (time.perf_counter() - begin_s))
            limit = LIMITS_MS.get(ranks)
            yield figure(f"one location, {where}", ranks, located_ms, "ms", limit, is_right=right)
            yield figure(f"one picture, {where}", ranks, taken_ms, "ms")


def feed(analyzer: Analyzer, batches: Sequence[Batch], now_s: float) -> None:
    """As the server does: what has come at one time at once."""
    for first in range(0, len(batches), AT_ONCE):
        analyzer.feed_all(batches[first : first + AT_ONCE], now_s)
