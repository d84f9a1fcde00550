"""Lets all methods go through the same telemetry of one simulated job: the batches of its agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from whichrank.analyzer import Analyzer
from whichrank.model.incident import Incident
from whichrank.testbed.bench.methods.c4d import C4d
from whichrank.testbed.bench.methods.ccl_d import CclD
from whichrank.testbed.bench.methods.megatrace import MegaTrace
from whichrank.testbed.bench.methods.method import Limits, Method, Said
from whichrank.testbed.bench.methods.telemetry import Telemetry
from whichrank.testbed.bench.paper import dissimilar, heat_map, late_entry, trace_graph
from whichrank.testbed.bench.paper.finding import Finding
from whichrank.testbed.bench.paper.halt import HaltPoint
from whichrank.testbed.bench.paper.observed import Configuration, Observed, Rows, observe
from whichrank.testbed.bench.paper.peers_timeout import PeersTimeout
from whichrank.testbed.sim.faults import Fault
from whichrank.testbed.sim.trial import CONFIG, Drawn, batches

OURS: Final = "whichrank"
MEGATRACE: Final = "megatrace"
LIMITS: Final = Limits(hang_s=CONFIG.hang_timeout_s, window_s=CONFIG.slow_window_s)
"""The patience of whichrank, for all."""
LISTENING: Final[dict[str, Callable[[Limits], Method]]] = {
    MEGATRACE: MegaTrace, "c4d": C4d, "ccl-d": CclD, "jit": PeersTimeout,
}  # fmt: skip
"""Methods that look at the job while it runs."""
LOOKING_BACK: Final[dict[str, Callable[[Observed], list[Finding]]]] = {
    MEGATRACE: trace_graph.name_slow, "holmes": late_entry.name_slow, "minder": dissimilar.name_slow,
    "megascale": heat_map.name_slow,
}  # fmt: skip
"""Methods that judge whole iterations; only for what is slow."""
METHODS: Final = tuple(dict.fromkeys((OURS, *LISTENING, *LOOKING_BACK)))
SAY_PARTS: Final = (OURS, MEGATRACE)
"""Methods that say in which part of the iteration."""


def hear(job: Drawn, fault: Fault) -> tuple[list[Incident], dict[str, list[Finding]]]:
    """Everything that is said of a job.

    Returns:
        The incidents of whichrank, and by method of others its findings, in order.
    """
    config = Configuration(job.layout, job.schedule, job.layers)
    analyzer, incidents = Analyzer(CONFIG, "simulated", 0.0), list[Incident]()
    seen, records = Telemetry(), list[Rows]()
    methods = {name: make(LIMITS) for name, make in LISTENING.items()}
    findings = {name: list[Finding]() for name in METHODS if name != OURS}
    for at_s, reported in batches(job, fault):
        analyzer.feed_all(reported, at_s)
        incidents += analyzer.tick(at_s)
        if analyzer.slowness_failed:
            raise analyzer.slowness_failed
        for batch in reported:
            seen.feed(batch, at_s)
            records.append(batch.record_rows())
        seen.at(at_s)
        for name, method in methods.items():
            for said in method.examine(seen):
                findings[name].append(_finding(said, name == MEGATRACE, config, records, seen))
    observed = observe(config, records)
    for name, look_back in LOOKING_BACK.items():
        findings[name] += look_back(observed)
    return incidents, findings


def _finding(said: Said, says_part: bool, config: Configuration, records: list[Rows], seen: Telemetry) -> Finding:
    ranks, links = tuple(sorted(said.ranks)), tuple(sorted(said.links))
    if not says_part or said.kind != "hang":
        return Finding(ranks, links)
    halt = HaltPoint(config, records, seen)
    return Finding(ranks, links, halt.of_rank(ranks[0]) if len(ranks) == 1 else halt.of_job())
