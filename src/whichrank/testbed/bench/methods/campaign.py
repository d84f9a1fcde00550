"""Runs the catalogue in the lab, lets every method go through each recording, and keeps a line of JSON for each run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from whichrank.errors import UsageError
from whichrank.testbed.bench.judge import LEAST_COST
from whichrank.testbed.bench.launch import Launcher
from whichrank.testbed.bench.methods.bisection import bisect
from whichrank.testbed.bench.methods.claims import due_of
from whichrank.testbed.bench.methods.flows import Flows
from whichrank.testbed.bench.methods.method import Limits
from whichrank.testbed.bench.methods.ours import words_of
from whichrank.testbed.bench.methods.score import METHODS, Outcome, expected_of, judge, listen
from whichrank.testbed.bench.methods.word import Word
from whichrank.testbed.bench.nursery import Nursery
from whichrank.testbed.bench.pair_runs import PairRuns
from whichrank.testbed.bench.results_file import append_result, keep_run, make_ready, read_results, ready_folder
from whichrank.testbed.bench.setup import HANG_TIMEOUT_S, SLOW_WINDOW_S, Result, Setup
from whichrank.testbed.bench.trial import Trial
from whichrank.testbed.demo.folders import new_folder
from whichrank.testbed.demo.plan import Truth
from whichrank.testbed.lab.network import Network
from whichrank.testbed.lab.scenarios import CLAIMED, SCENARIOS, Scenario
from whichrank.testbed.lab.topology import Topology
from whichrank.wire.tape import FILE_NAME

OURS: Final = "whichrank"
BISECTION: Final = "bisection"
"""No method on recordings: it needs the lab, still faulty."""
METHOD_NAMES: Final = (*METHODS, BISECTION)
RANKS: Final = 8
RATE: Final = "200mbit"
QUIET_S: Final = 1.2 * SLOW_WINDOW_S
"""Before links become slow, and before a rank of a pipeline does: what is usual is taken from a window before it."""
HEARD_QUIET_S: Final = 2.2 * SLOW_WINDOW_S
"""The same before slowdowns that other methods hear: CCL-D takes its baseline from two windows."""
CLAIM_QUIET_S: Final = 4 * SLOW_WINDOW_S
NOT_DONE: Final = "no_fault_done"


class Run(msgspec.Struct, frozen=True):
    """A run of a scenario.

    Attributes:
        verdict: On whichrank as it ran, by every word that it said.
        is_absorbed: The job went on as before.
        longer: By which share iterations took longer, if that was seen.
        detected_s: From the fault to the first alert in the file.
        outcomes: By method, ours too: on the recording.
        truth: What was done, None if nothing was.
        error: Why nothing was done, if that is known.
        has_steps: Its ranks noted optimizer steps.
    """

    scenario: str
    fault_class: str | None
    seed: int
    workload: str
    launcher: str
    verdict: str
    is_absorbed: bool
    longer: float | None
    detected_s: float | None
    outcomes: dict[str, Outcome]
    truth: dict[str, Any] | None
    incidents: list[dict[str, Any]]
    error: str = ""
    has_steps: bool = True

    @property
    def key(self) -> tuple[str, int, bool]:
        """As `Planned.key`."""
        return self.scenario, self.seed, self.has_steps

    @property
    def was_done(self) -> bool:
        """Else nothing was done to the job, or it failed by itself."""
        return self.verdict != NOT_DONE


class Planned(NamedTuple):
    """A run to come.

    Attributes:
        may_be_heard: By every method, with patience after the fault, if no run of the scenario has been yet; else it is
            for ours alone.
        launcher: Of its ranks; torchrun does for either.
        has_steps: They note optimizer steps.
    """

    scenario: Scenario
    seed: int
    may_be_heard: bool
    launcher: Launcher
    has_steps: bool = True

    @property
    def key(self) -> tuple[str, int, bool]:
        """Under which a results file knows it."""
        return self.scenario.name, self.seed, self.has_steps


def plan(
    scenarios: Iterable[Scenario], seeds: int, launcher: Launcher | None = None, *, has_steps: bool = True
) -> list[Planned]:
    """All scenarios with the first seed, then with the next. One run of each is heard, not of the same seed for all.

    Args:
        scenarios: Of the catalogue.
        seeds: From 0 on.
        launcher: Of every run; None: torchrun for the first seed, preloaded for the others.
        has_steps: Ranks note optimizer steps.
    """
    place = {scenario: i for i, scenario in enumerate(SCENARIOS)}
    every = list(scenarios)
    return [
        Planned(
            s, seed, s.is_claim or seed >= place[s] % seeds, launcher or ("preloaded" if seed else "torchrun"),
            has_steps,
        )
        for seed in range(seeds)
        for s in every
    ]  # fmt: skip


def setup_of(planned: Planned, *, is_heard: bool) -> Setup:
    """How a scenario is run: one agent on each of four nodes."""
    scenario, seed = planned.scenario, planned.seed
    workload = scenario.workload(seed)
    return Setup(
        scenario.fault, RANKS, seed, planned.launcher, variant=scenario.variant,
        workload=workload, topology=Topology(), rate=RATE, record=True, at_leisure=is_heard,
        quiet_s=_quiet_s(scenario, workload, is_heard=is_heard),
        job_args=job_args_of(scenario), has_steps=planned.has_steps,
    )  # fmt: skip


def job_args_of(scenario: Scenario) -> tuple[str, ...]:
    """What the job of a scenario is started with: where others claim something, it does the same in each iteration."""
    return ("--log-every", "0") if scenario.is_claim else ()


def quiet_of_claim_s(scenario: Scenario) -> float:
    """So long a job goes well before it becomes slower as others claim to see; 0 for all other scenarios."""
    return CLAIM_QUIET_S if scenario.is_claim and scenario.fault_class in ("S1", "S2", "S3") else 0.0


def _quiet_s(scenario: Scenario, workload: str, *, is_heard: bool) -> float:
    if quiet_s := quiet_of_claim_s(scenario):
        return quiet_s
    slow_ranks_need_it = is_heard or workload == "3d"  # elsewhere ranks have sound peers beside them
    is_of_ranks = scenario.fault_class == "S1" or scenario.fault == "slow-every-rank"
    needs_it = scenario.fault_class in ("S2", "S3") or (is_of_ranks and slow_ranks_need_it)
    return (HEARD_QUIET_S if is_heard else QUIET_S) if needs_it else 0.0


def done_in(path: Path) -> dict[tuple[str, int, bool], Run]:
    """Runs that a file holds, by `Run.key`; without those that are other ones by now.

    Raises:
        UsageError: It cannot be read.
        FormatError: It holds something else.
    """
    runs = read_results(path, msgspec.json.Decoder(Run).decode)
    return {run.key: run for run in runs if _is_current(run)}


def left(todo: Iterable[Planned], known: Mapping[tuple[str, int, bool], Run], methods: Sequence[str]) -> list[Planned]:
    """The runs of a plan that are still to be done.

    Args:
        todo: The plan.
        known: What a file holds. A run in which nothing was done is to be done again; so is one of each scenario that
            these methods have not heard.
        methods: Of `METHOD_NAMES`.
    """
    todo = list(todo)
    heard = heard_of(todo, known, methods)
    found = []
    for planned in todo:
        run = known.get(planned.key)
        if planned.scenario.is_claim:
            needs_ears = run is not None and not _hears(run, methods)
        else:
            needs_ears = planned.may_be_heard and planned.scenario.name not in heard
        if run is None or not run.was_done or needs_ears or run.launcher not in (planned.launcher, "torchrun"):
            found.append(planned)
            heard |= {planned.scenario.name} if planned.may_be_heard else set()
    return found


def heard_of(todo: Iterable[Planned], known: Mapping[tuple[str, int, bool], Run], methods: Sequence[str]) -> set[str]:
    """The scenarios of a plan of which these methods have gone through a run already: one that is in the plan."""
    runs = (known.get(planned.key) for planned in todo)
    return {run.scenario for run in runs if run and _hears(run, methods)}


def _is_current(run: Run) -> bool:
    """Is it of a scenario that there is, and of the workload that its seed has now?"""
    scenario = next((one for one in (*SCENARIOS, *CLAIMED) if one.name == run.scenario), None)
    return scenario is not None and run.workload == scenario.workload(run.seed)


def _hears(run: Run, methods: Sequence[str]) -> bool:
    """Have all of them gone through it, but for bisection, which is of some scenarios only?"""
    return set(methods) - {BISECTION} <= run.outcomes.keys()


def run_all(
    todo: Sequence[Planned],
    methods: Sequence[str],
    heard: Iterable[str],
    path: Path,
    keep: Path | None,
    show_progress: Callable[[Run], None],
) -> None:
    """Run scenarios, and append what came of each.

    Args:
        todo: What the file does not hold.
        methods: Of `METHOD_NAMES`.
        heard: Scenarios of which they have gone through a run.
        path: JSON lines.
        keep: Where the output of each run is kept, recordings too; None: nowhere.
        show_progress: Called after each.

    Raises:
        UsageError: The file or the folder cannot be written.
    """
    make_ready(path)
    if keep:
        ready_folder(keep)
    heard = set(heard)
    with Nursery() as nursery:
        for planned in todo:
            is_heard = planned.scenario.is_claim or (planned.may_be_heard and planned.scenario.name not in heard)
            folder = new_folder("whichrank-score-")
            try:
                run = run_one(planned, methods if is_heard else (), folder, nursery.path)
                append_result(path, run)
                if keep:
                    keep_run(folder, _kept(keep, run))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            heard |= {run.scenario} if _hears(run, methods) else set()
            show_progress(run)


def hear_again(
    todo: Sequence[Planned],
    known: Mapping[tuple[str, int, bool], Run],
    methods: Sequence[str],
    path: Path,
    keep: Path,
    show_progress: Callable[[Run], None],
) -> None:
    """Let methods go through recordings of runs that they have gone through before, and append what comes of it.

    What other methods said before is judged again by what they claim now; whichrank itself and bisection too.

    Args:
        todo: A plan; of its runs those that have been heard.
        known: What the file holds.
        methods: Of `METHOD_NAMES`.
        path: JSON lines.
        keep: Where the output of each run is kept.
        show_progress: Called after each.

    Raises:
        UsageError: The file cannot be written or holds no such run, or there is no recording of one.
    """
    make_ready(path)
    runs = [(planned.scenario, known[planned.key]) for planned in todo if planned.key in known]
    heard = [(scenario, run) for scenario, run in runs if run.outcomes.keys() & METHODS.keys()]
    if not heard:
        raise UsageError(
            "no run of these that methods have gone through", where=str(path), mend="whichrank lab score --keep FOLDER"
        )
    for scenario, run in heard:
        tape = _kept(keep, run) / FILE_NAME
        if not tape.is_file():
            raise UsageError(
                f"there is no recording of {run.scenario}, seed {run.seed}", where=str(tape), mend="--keep FOLDER"
            )
        said, flows = _heard(tape, methods)
        before = {name: list(outcome.words) for name, outcome in run.outcomes.items()}
        outcomes = _outcomes(msgspec.convert(run.truth, Truth), scenario, before | said, flows)
        again = msgspec.structs.replace(run, outcomes=outcomes)
        append_result(path, again)
        show_progress(again)


def _kept(keep: Path, run: Run) -> Path:
    return keep / f"{run.scenario.replace(' ', '-')}-{run.seed}{'' if run.has_steps else '-no-steps'}"


def run_one(planned: Planned, methods: Sequence[str], folder: Path, nursery: Path) -> Run:
    """Run a scenario once, with preloaded launchers of this nursery, and let the methods go through its recording."""
    scenario, seed = planned.scenario, planned.seed
    setup = setup_of(planned, is_heard=bool(methods))
    said, flows = dict[str, list[Word]](), Flows()

    def train_again(network: Network) -> None:
        local = RANKS // network.count
        said[BISECTION] = bisect(PairRuns(network, local, nursery).train, network.count, local)

    is_tried = BISECTION in methods and scenario.outlasts_its_job and not scenario.is_claim
    result = Trial(setup, folder, afterwards=train_again if is_tried else None, nursery=nursery).run()
    truth = msgspec.convert(result.truth, Truth) if result.truth and result.verdict != NOT_DONE else None
    if truth:
        heard, flows = _heard(folder / FILE_NAME, methods)
        said |= heard | {OURS: words_of(folder / FILE_NAME)}
    return Run(
        scenario=scenario.name,
        fault_class=scenario.fault_class,
        seed=seed,
        workload=setup.workload,
        launcher=setup.launcher,
        verdict=result.verdict,
        is_absorbed=_is_absorbed(result),
        longer=result.longer,
        detected_s=result.seconds_to_alert,
        outcomes=_outcomes(truth, scenario, said, flows) if truth else {},
        truth=result.truth,
        incidents=result.incidents,
        error=result.error,
        has_steps=setup.has_steps,
    )


def _heard(tape: Path, methods: Sequence[str]) -> tuple[dict[str, list[Word]], Flows]:
    """What methods say of a recording, and who sent to whom in it; bisection needs a lab and is left out."""
    flows = Flows()
    names = [name for name in methods if name in METHODS]
    return listen(tape, names, Limits(HANG_TIMEOUT_S, SLOW_WINDOW_S), flows.note), flows


def _outcomes(truth: Truth, scenario: Scenario, said: Mapping[str, list[Word]], flows: Flows) -> dict[str, Outcome]:
    """Each method's words against the truth, by what it claims; what it does not claim is in no table."""
    outcomes = {}
    for name, words in said.items():
        due = "name" if name == OURS else due_of(name, scenario.name) or "name"
        other_ends = flows.other_ends(truth.sources, truth.targets) if due == "end" else frozenset[int]()
        expected = expected_of(truth, RANKS, scenario.fault_class, other_ends)
        outcomes[name] = judge(expected, words, truth.at_monotonic_ns / 1e9, due)
    return outcomes


def _is_absorbed(result: Result) -> bool:
    if result.went_on is not None:
        return result.went_on
    return result.longer is not None and result.longer < LEAST_COST
