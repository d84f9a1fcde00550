"""One job under all methods, and the truth beside what each of them said; a line of results for each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from whichrank.testbed.bench.paper.cells import CELLS, FIRST_SEED, Cell
from whichrank.testbed.bench.paper.finding import Finding
from whichrank.testbed.bench.paper.hear import METHODS, OURS, hear
from whichrank.testbed.bench.results_file import append_result, make_ready, read_results
from whichrank.testbed.sim.faults import Fault, ends_of
from whichrank.testbed.sim.trial import Verdict, longer_by, score, verdict_of


class Outcome(msgspec.Struct, frozen=True):
    """What came of a method in a run.

    Attributes:
        verdict: `right`: who is at fault was named, or nobody where nobody is; `unknown`: a hang was reported, and
            nobody was named though somebody is at fault.
        phase: Whether the phase is right, None: it was not said, or there is no one phase.
        microbatch: The same.
    """

    verdict: Verdict
    ranks: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    phase: bool | None = None
    microbatch: bool | None = None


class Truth(msgspec.Struct, frozen=True):
    """What was done; the fields are those of `faults.Fault`."""

    kind: str
    where: str
    rank: int
    sender: int
    phase: int
    microbatch: int
    factor: float
    delay_s: float
    onset: int


class Result(msgspec.Struct, frozen=True):
    """A run.

    Attributes:
        longer: By which share iterations were longer.
        is_due: Somebody is to be named, or a hang to be reported.
        outcomes: By method.
        took_s: Seconds of this machine for all of it.
    """

    cell: str
    seed: int
    layout: str
    schedule: str
    layers: int
    truth: Truth
    longer: float
    is_due: bool
    outcomes: dict[str, Outcome]
    took_s: float


def run_all(names: Sequence[str], runs: int, path: Path, show_progress: Callable[[Result], None]) -> list[Result]:
    """Do what is not in the file yet, and add a line for each run.

    Args:
        names: Of cells.
        runs: Of each cell.
        path: JSON lines; continued if there.
        show_progress: Called with each run, known ones first.

    Raises:
        UsageError: The file cannot be written.
        FormatError: It holds something else.
    """
    make_ready(path)
    seeds = range(FIRST_SEED, FIRST_SEED + runs)
    known = {(one.cell, one.seed): one for one in read_results(path, msgspec.json.Decoder(Result).decode)}
    results = list[Result]()
    for seed in seeds:  # a file that is not complete holds about as many runs of each cell
        for name in names:
            one = known.get((name, seed))
            if one is None:
                one = run_one(CELLS[name], seed)
                append_result(path, one)
            results.append(one)
            show_progress(one)
    return results


def run_one(cell: Cell, seed: int) -> Result:
    """One job under all methods."""
    begun_s = time.perf_counter()
    job, fault = cell.drawn(seed)
    incidents, findings = hear(job, fault)
    ours = score(job, fault, incidents)
    longer = longer_by(job, fault) if cell.group == "nobody" else ours.longer
    ends = ends_of(fault, job.run())
    alerts = [one for one in incidents if one.severity == "alert"]
    ranks = tuple(sorted({culprit.rank for one in alerts for culprit in one.culprits}))
    links = tuple(sorted({(link.src, link.dst) for one in alerts for link in one.links}))
    outcomes = {OURS: Outcome(ours.verdict, ranks, links, ours.phase, ours.microbatch)}
    outcomes |= {name: judge(fault, ends, findings[name]) for name in METHODS if name != OURS}
    truth = Truth(**{name: getattr(fault, name) for name in Truth.__struct_fields__})
    return Result(
        cell.name, seed, job.layout.name, job.name, job.layers, truth, round(longer, 4), ours.is_due, outcomes,
        round(time.perf_counter() - begun_s, 3),
    )  # fmt: skip


def judge(fault: Fault, ends: frozenset[int], findings: Sequence[Finding]) -> Outcome:
    """What came of a method of others, by the rule of `trial.score`: every word counts.

    Args:
        fault: The truth.
        ends: Between which ranks something was lost.
        findings: What it said, in order.
    """
    named = {rank for one in findings for rank in one.ranks}
    links = {link for one in findings for link in one.links}
    may = {fault.rank} - ends
    is_wrong = bool(named - may - ends or {rank for link in links for rank in link} - ends - may)
    verdict = verdict_of(fault, ends, is_wrong=is_wrong, names=bool(named or links), says=bool(findings))
    parts = [one.part for one in findings if one.part.phase >= 0]
    phase = microbatch = None
    if verdict == "right" and parts and fault.phase >= 0:
        phase = parts[-1].phase == fault.phase
        if parts[-1].microbatch >= 0:
            microbatch = phase and parts[-1].microbatch == fault.microbatch
    return Outcome(verdict, tuple(sorted(named)), tuple(sorted(links)), phase, microbatch)
