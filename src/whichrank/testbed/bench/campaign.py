"""Many trials in a row: one line of JSON per trial, so that a campaign can be stopped and continued.

Trials run one after the other, since two jobs of eight ranks on two cores would disturb each other's healthy runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from whichrank.testbed.bench.nursery import Nursery
from whichrank.testbed.bench.results_file import append_result, keep_run, make_ready, read_results, ready_folder
from whichrank.testbed.bench.setup import Result, Setup, has_means
from whichrank.testbed.bench.trial import Trial
from whichrank.testbed.demo.faults import CATALOGUE
from whichrank.testbed.demo.folders import new_folder
from whichrank.testbed.demo.matrix import ASYNC, DEATH
from whichrank.testbed.demo.slow import SLOW
from whichrank.testbed.lab.network import can_be_here


def demo_plan(seeds: int, ranks: int = 8, faults: Iterable[str] = ()) -> list[Setup]:
    """Every fault of the demo: `seeds` runs from the preloaded launcher, the first seed under real torchrun too."""
    names = list(faults) or list(CATALOGUE)
    runs = [Setup(name, ranks, seed) for seed in range(seeds) for name in names]
    return runs + [Setup(name, ranks, 0, "torchrun") for name in names]


def matrix_plan(seeds: int, faults: Iterable[str] = ()) -> list[Setup]:
    """Death, async and skew matrix."""
    names = list(faults) or [*DEATH, *ASYNC]
    runs = [Setup(name, 4 if name in ASYNC else 8, seed) for seed in range(seeds) for name in names]
    if not faults:
        for seed in range(seeds):
            for fault in ("skip-op", "repeat-op"):
                runs.append(Setup(fault, 8, seed, layout="tp2-pp2-dp2", variant="equal"))
                runs.append(Setup(fault, 8, seed, layout="tp2-pp2-dp2", variant="equal", job_args=("--reinit-at", "5")))
    return runs


def slow_plan(seeds: int, faults: Iterable[str] = ()) -> list[Setup]:
    """Every slowdown in every magnitude that this machine can have. Healthy runs are in the plan of the demo."""
    have_nodes = can_be_here()
    slow = [name for name, fault in SLOW.items() if (fault.nodes == 1 or have_nodes) and has_means(fault)]
    runs = []
    for seed in range(seeds):
        for name in list(faults) or slow:
            fault = SLOW.get(name)
            variants = [variant.name for variant in fault.variants] if fault else [""]
            runs += [Setup(name, 8, seed, variant=variant) for variant in variants]
    return runs


def key_of(setup: dict[str, Any]) -> str:
    """What makes two trials the same."""
    names = ("fault", "seed", "ranks", "launcher", "variant", "hang_timeout_s")
    switch = [] if setup.get("has_steps", True) else ["no-steps"]  # a file of before has no such field
    return "/".join([*(str(setup[name]) for name in names), *setup["job_args"], setup.get("workload", ""), *switch])


def done_in(path: Path) -> dict[str, dict[str, Any]]:
    """Results in a campaign's file, by `key_of`.

    Raises:
        UsageError: It cannot be read, or is no file.
        FormatError: It holds something else.
    """

    def keyed(line: bytes) -> tuple[str, dict[str, Any]]:
        result = msgspec.json.decode(line)
        return key_of(result["setup"]), result

    return dict(read_results(path, keyed))


def run_campaign(
    plan: list[Setup], path: Path, keep: Path | None, show_progress: Callable[[int, int, Result], None]
) -> Iterator[Result]:
    """Run what the file does not hold yet, and append it there.

    Args:
        plan: All trials.
        path: JSON lines, one per trial.
        keep: Folder for the output of trials that did not agree, None to keep nothing.
        show_progress: Called after each trial with its number, the total and the result.

    Raises:
        UsageError: The file cannot be read or written.
        FormatError: It holds something else.
    """
    known = done_in(path)
    todo = [setup for setup in plan if key_of(msgspec.to_builtins(setup)) not in known]
    make_ready(path)
    if keep:
        ready_folder(keep)
    with Nursery() as nursery:
        for number, setup in enumerate(todo, len(plan) - len(todo) + 1):
            folder = new_folder("whichrank-trial-")
            try:
                result = Trial(setup, folder, nursery=nursery.path).run()
                append_result(path, result)
                if keep and not result.agree:
                    keep_run(folder, keep / _folder_of(setup))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            show_progress(number, len(plan), result)
            yield result


def _folder_of(setup: Setup) -> str:
    switch = "" if setup.has_steps else "-no-steps"
    return f"{setup.fault}-{setup.seed}-{setup.launcher}{switch}"
