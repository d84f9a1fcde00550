"""`whichrank lab score`: the catalogue of faults, and every method on the same runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import progress_bar


@click.command()
@click.option("--scenarios", help="Names with commas between, 'quick' or 'claims'; all if not given. See `lab list`.")
@click.option("--seeds", type=WholeNumber(1, 1000), default=5, show_default=True, help="Runs of each scenario.")
@click.option("--methods", default="", help="Names with commas between; all if not given, 'none' for whichrank alone.")
@click.option(
    "--launcher",
    type=click.Choice(["preloaded", "torchrun"]),
    help="Of every run; torchrun for the first seed and preloaded, which is quicker, for the others if not given.",
)
@click.option("--results", type=click.Path(path_type=Path), help="JSON lines; continued if there.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep what each run wrote here, recordings too.")
@click.option(
    "--again",
    is_flag=True,
    help="Run nothing: methods go through the recordings in --keep again, and what they find replaces what they found.",
)
@click.option("--no-steps", is_flag=True, help="Ranks note no optimizer steps: iterations are found by operations.")
@click.option("--picture", "picture_path", type=click.Path(path_type=Path), help="Write the first table as SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print all runs as JSON.")
def score(
    scenarios: str | None, seeds: int, methods: str, launcher: Any, results: Path | None, keep: Path | None,
    again: bool, no_steps: bool, picture_path: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Run the catalogue, let each method go through a recording of each scenario, and print the tables.

    Methods of others are re-implementations of ours, and are scored only where their sources claim something.
    A run takes about half a minute; one that was ended goes on where it was, and runs in which nothing was done to the
    job are done again. Exit code 0: whichrank was right in all runs; 1: it was not.
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.testbed.bench.methods.campaign import OURS, done_in, plan
    from whichrank.testbed.bench.methods.tables import class_table, methods_table, picture, scenario_table, verdict_of
    from whichrank.testbed.bench.results_file import ready_picture
    from whichrank.testbed.bench.tables import NO_STEPS
    from whichrank.testbed.lab.scenarios import chosen

    names = _methods(methods)
    if scenarios is not None and not _names(scenarios):  # a variable of the shell that is not set
        raise UsageError("--scenarios names none", mend="leave it out for all, or whichrank lab list")
    todo = plan(chosen(_names(scenarios or "")), seeds, launcher, has_steps=not no_steps)
    path = results or Path("whichrank-out/lab-score.jsonl")
    if picture_path:
        ready_picture(picture_path)
    if again:
        _again(todo, names, path, keep)
    else:
        _run(todo, names, path, keep)
    known = done_in(path)
    runs = [known[planned.key] for planned in todo if planned.key in known]
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(runs) + b"\n")
    else:
        tables = (class_table(runs), scenario_table(runs), methods_table(runs), NO_STEPS if no_steps else "")
        click.echo("\n\n".join(filter(None, tables)))
    if picture_path:
        picture_path.write_text(picture(runs), encoding="utf-8")
    return 0 if all(verdict_of(run, OURS) in ("right", "absorbed") for run in runs) else 1


def _run(todo: list[Any], methods: list[str], path: Path, keep: Path | None) -> None:
    """What is left of a plan."""
    from whichrank.sensors.c10d import torch_folder
    from whichrank.surface.leave import leave_on_signals
    from whichrank.testbed.bench.methods.campaign import OURS, Run, done_in, heard_of, left, run_all
    from whichrank.testbed.bench.methods.tables import verdict_of
    from whichrank.testbed.bench.setup import lab_faults, require_means
    from whichrank.testbed.lab.box import remove_abandoned
    from whichrank.testbed.lab.userspace import become_root_of_a_namespace

    known = done_in(path)
    to_do, heard = left(todo, known, methods), heard_of(todo, known, methods)
    torch_folder()
    become_root_of_a_namespace(sys.argv[1:])
    faults = lab_faults()
    for planned in to_do:
        require_means(faults[planned.scenario.fault])
    remove_abandoned()
    leave_on_signals()
    with progress_bar() as progress:
        bar = progress.add_task("runs", total=len(todo), completed=len(todo) - len(to_do))

        def show_progress(run: Run) -> None:
            progress.advance(bar)
            after = "" if run.detected_s is None else f" {run.detected_s:.1f} s"
            word = verdict_of(run, OURS) or ": ".join(filter(None, (run.verdict, run.error)))
            progress.console.print(f"{run.scenario}, seed {run.seed}, {run.workload}: {word}{after}")

        run_all(to_do, methods, heard, path, keep, show_progress)


def _again(todo: list[Any], methods: list[str], path: Path, keep: Path | None) -> None:
    """Methods go through what was kept."""
    from whichrank.errors import UsageError
    from whichrank.testbed.bench.methods.campaign import done_in, hear_again

    if keep is None:
        raise UsageError("--again goes through recordings that were kept", mend="--keep FOLDER")
    with progress_bar() as progress:
        bar = progress.add_task("runs", total=len(todo))
        hear_again(todo, done_in(path), methods, path, keep, lambda _: progress.advance(bar))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _methods(text: str) -> list[str]:
    from whichrank.errors import UsageError
    from whichrank.testbed.bench.methods.campaign import METHOD_NAMES

    names: list[Any] = _names(text)
    if names == ["none"]:
        return []
    for name in names:
        if name not in METHOD_NAMES:
            raise UsageError(f"there is no method '{name}'", mend=f"--methods {','.join(METHOD_NAMES)}")
    return names or list(METHOD_NAMES)
