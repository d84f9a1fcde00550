"""What the analyzer costs: records taken in per second, and the time of one location, by the size of the job.

On simulated telemetry, one core, no I/O. Three states of a hang are located: `tp`, a rank that does not enter a
tensor-parallel operation (its pipeline blocked in receives, everybody else in all-reduces); `world`, a rank that all
others wait for in one operation of the world; and `deadlock`, of 64 ranks. `bench.scale` has more of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from whichrank.analyzer import Analyzer
from whichrank.analyzer.hangs import ASK_AFTER_S
from whichrank.config import AnalyzerConfig
from whichrank.hang.order import what_hangs
from whichrank.model.telemetry import Batch
from whichrank.stage.layout import Layout
from whichrank.stage.schedules import one_f_one_b
from whichrank.testbed.bench.figures import Figure, figure
from whichrank.testbed.bench.scale.jobs import SHORT, TENSOR, layout_of
from whichrank.testbed.bench.scale.location import feed, stand
from whichrank.testbed.sim.faults import Fault
from whichrank.testbed.sim.halts import Where
from whichrank.testbed.sim.run import Run, Times
from whichrank.testbed.sim.telemetry import Agents
from whichrank.wire.envelope import decode, encode

RANKS = (64, 512, 4096, 65536)
WHERE: tuple[Where, ...] = ("tp", "world", "deadlock")
INGEST_ITERATIONS = 20
TURNS = 3
"""Batches of each agent in a sample of ingest: more operations than are kept before iterations are measured."""
STEADY_WARM = 12
"""Iterations until all periods are known."""
ITERATION_S = 1.0
LAYERS = 2
"""Of each pipeline stage."""
SLOWER = 1.8
"""Times as long as others computes a rank that is slow."""
SPREAD = 0.01
"""Of own times: of thousands of ranks that share cores, as in the lab, one is always as late as the slow one."""
SLOW_WINDOW_S, SLOW_WARM = 8.0, 12
"""A window, and how many iterations are reported before a snapshot is measured."""


def ingest(ranks: int = 512, samples: int = 10) -> list[Figure]:
    """Records per second that one analyzer takes in from agents of eight ranks each, once it knows the iteration.

    The job's operations end on the host and its ranks make steps, so that slowness is measured too: every operation is
    kept until its iteration is over, and each sample holds at least one measurement of all iterations since the last.
    Beside it stands the rate of a job on devices, of which nothing of slowness is claimed: it says what that costs.

    Raises:
        AssertionError: Slowness was measured where it should not be, or the other way round.
    """
    rates, per_batch_ms = _ingested(ranks, "gloo", samples, measures_slowness=True)
    on_device, _ = _ingested(ranks, "nccl", samples, measures_slowness=False)
    per_batch = f"ingest of one batch ({INGEST_ITERATIONS} iterations of {TENSOR} ranks)"
    return [
        figure("ingest", ranks, rates, "records/s"),
        figure(per_batch, ranks, per_batch_ms, "ms"),
        figure("ingest without slowness (operations on devices)", ranks, on_device, "records/s"),
    ]


class _Job:
    """A job that goes on, and its agents.

    Args:
        layout: Of its ranks.
        backend: Of its communicators.
        slow: The rank that computes longer than others, -1 none.
    """

    def __init__(self, layout: Layout, backend: str = "gloo", slow: int = -1) -> None:
        # In 1F1B an iteration has microbatches + stages - 1 blocks of three times forward.
        forward_s = ITERATION_S / (3 * LAYERS * (SHORT + layout.pp - 1)) / (SLOWER if slow >= 0 else 1.0)
        times = Times(forward_s=forward_s, pauses=0.0, spread=SPREAD)
        self.run = Run(layout, one_f_one_b(layout.pp, SHORT), layers=LAYERS, times=times)
        if slow >= 0:
            self.run.slower = partial(Fault("slow", "all", slow, factor=SLOWER, onset=1).slower, self.run)
        self._agents = Agents(self.run, backend=backend)

    def batches(self, iterations: int) -> list[Batch]:
        """What all agents say of so many iterations more."""
        return list(self._agents.report([self.run.iterate() for _ in range(iterations)]))


def _ingested(ranks: int, backend: str, samples: int, *, measures_slowness: bool) -> tuple[list[float], list[float]]:
    """Records per second, and milliseconds of a batch, in each sample."""
    job, analyzer = _Job(layout_of(ranks), backend), Analyzer(AnalyzerConfig(), "simulated", 0.0)
    now_s, rates, per_batch_ms = 10.0, list[float](), list[float]()
    for sample in range(-1, samples):  # the first one warms up
        records = count = 0
        took_s = 0.0
        for _ in range(TURNS):
            batches = job.batches(INGEST_ITERATIONS)
            records += sum(len(batch.record_rows()) for batch in batches)
            count += len(batches)
            gc.collect()
            start_s = time.perf_counter()
            feed(analyzer, batches, now_s)
            took_s += time.perf_counter() - start_s
            now_s += INGEST_ITERATIONS * ITERATION_S
        if sample >= 0:
            rates.append(records / took_s)
            per_batch_ms.append(1e3 * took_s / count)
    iterations = analyzer.slowness.iterations
    if (iterations.pending > 0 or iterations.newest >= 0) != measures_slowness:
        raise AssertionError(f"slowness is {'not ' if measures_slowness else ''}measured")
    return rates, per_batch_ms


def steady(ranks: int, samples: int = 5) -> list[Figure]:
    """What an analyzer takes of a core while each agent of eight ranks sends an iteration every second.

    The job's operations end on the host and its ranks make steps, so slowness is measured too; periods are known.
    Agents come in any order. Decoding is a row of its own. Without ticks: how many there are is the server's matter,
    and rows of their own say what one takes, once all agents have sent something new, and before they have. Its memory
    counts without the batches and the job that makes them.
    """
    job = _Job(layout_of(ranks))
    analyzer, shares, new, none = Analyzer(AnalyzerConfig(), "simulated", 0.0), list[float](), [], []
    decoded, order = list[float](), random.Random(ranks)
    before_mib, beside_mib = _resident_mib(), 0.0
    for done in range(STEADY_WARM + samples):
        empty_mib = _resident_mib()
        batches = job.batches(1)
        beside_mib = max(beside_mib, _resident_mib() - empty_mib)
        order.shuffle(batches)
        if done >= STEADY_WARM:
            decoded.append(100 * sum(_cpu_s(partial(decode, encode(batch))) for batch in batches))
        gc.collect()
        share = 100 * _cpu_s(partial(feed, analyzer, batches, float(done)))
        ticks = [1e3 * _cpu_s(partial(analyzer.tick, done + after_s)) for after_s in (0.0, 0.01)]
        if done >= STEADY_WARM:
            shares.append(share)
            new.append(ticks[0])
            none.append(ticks[1])
    return [
        figure("one batch a second of each agent", ranks, shares, "%"),
        figure("decoding one batch a second of each agent", ranks, decoded, "%"),
        figure("one tick, all is new", ranks, new, "ms"),
        figure("one tick, nothing is new", ranks, none, "ms"),
        figure("memory", ranks, [_resident_mib() - before_mib - beside_mib], "MiB"),
    ]


def _cpu_s(run: Callable[[], object]) -> float:
    start_s = time.process_time()
    run()
    return time.process_time() - start_s


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def location(ranks: int, where: Where, polls: int = 9) -> list[Figure]:
    """Time of one location and of one whole tick while one rank hangs the job.

    Raises:
        AssertionError: The location is wrong.
    """
    standing = stand(where, ranks)
    found = standing.locate()
    if not standing.is_right(found):
        raise AssertionError(
            f"the location finds {found.cause if found else 'nothing'}, and names {found and found.names}"
        )
    analyzer, now_s = standing.analyzer, standing.now_s
    picture = analyzer.store.picture(now_s)
    taken = _times(lambda: analyzer.store.picture(now_s), polls)
    located = _times(lambda: what_hangs(analyzer.case, picture, ASK_AFTER_S), polls)
    ticked = _times(lambda: analyzer.tick(now_s), polls)
    return [
        figure(f"one location, {where}", ranks, located, "ms"),
        figure(f"one picture, {where}", ranks, taken, "ms"),
        figure(f"one tick, {where}", ranks, ticked, "ms"),
    ]


def slow_poll(ranks: int, polls: int = 5) -> list[Figure]:
    """Time of one look for slowness in which a slow rank is found, its cost to the job weighed, and named."""
    job = _Job(Layout(tp=TENSOR, dp=ranks // TENSOR), slow=culprit_of(ranks))
    analyzer = Analyzer(AnalyzerConfig(slow_window_s=SLOW_WINDOW_S), "simulated", 0.0)
    slowness, samples = analyzer.slowness, []
    for done in range(SLOW_WARM + polls):
        feed(analyzer, job.batches(1), float(done))
        picture = analyzer.store.picture(float(done))
        gc.collect()
        start_s = time.perf_counter()
        found = slowness.examine(analyzer.store, picture, float(done))
        if done >= SLOW_WARM:
            samples.append(1e3 * (time.perf_counter() - start_s))
            named = {rank for _, finding in found for rank in finding.names}
            if named != {culprit_of(ranks)}:
                raise AssertionError(f"the look names {named}, not {culprit_of(ranks)}")
    return [figure("one look for slowness that finds it", ranks, samples, "ms")]


def culprit_of(ranks: int) -> int:
    """The rank that is missing in these jobs."""
    return ranks // 3


def hung(ranks: int, where: Where) -> tuple[Analyzer, float]:
    """An analyzer that has seen a job run and then hang, and its time."""
    standing = stand(where, ranks)
    return standing.analyzer, standing.now_s


def _times(run: Callable[[], object], n: int) -> list[float]:
    run()
    samples = []
    for _ in range(n):
        gc.collect()
        start_s = time.perf_counter()
        run()
        samples.append(1e3 * (time.perf_counter() - start_s))
    return samples


def measure(sizes: Sequence[int] = RANKS) -> list[Figure]:
    """All figures."""
    figures = ingest()
    for ranks in sizes:
        for where in WHERE:
            figures += location(ranks, where)
        figures += steady(ranks)
        figures += slow_poll(ranks)
    return figures


def main(argv: list[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="whichrank.testbed.bench.overhead_locate", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=list(RANKS), help="sizes of the job")
    parser.add_argument("--json", action="store_true", help="as JSON")
    args = parser.parse_args(argv)
    figures = measure(args.ranks)
    if args.json:
        print(json.dumps([asdict(f) for f in figures]))
        return 0
    for f in figures:
        print(f"{f.what:44} {f.ranks:6} ranks  n {f.n:3}  {f.median:12,.2f} {f.unit}  ({f.low:,.2f} .. {f.high:,.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
