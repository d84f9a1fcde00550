"""`whichrank bench`: measure accuracy and cost; the tables of the docs come from here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from whichrank.surface.cli.bench_dumps import dumps, reading
from whichrank.surface.cli.bench_fail_slow import fail_slow
from whichrank.surface.cli.bench_gate import gate
from whichrank.surface.cli.bench_iterations import iterations
from whichrank.surface.cli.bench_logs import logs
from whichrank.surface.cli.bench_mitigate import mitigate
from whichrank.surface.cli.bench_paper import paper
from whichrank.surface.cli.bench_scale import scale
from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import progress_bar


@click.group(name="bench")
def command() -> None:
    """Measure accuracy and cost on this machine; the tables of the docs come from here."""
    from whichrank.surface.leave import leave_on_signals

    leave_on_signals()


def campaign_options(function: Callable[..., int]) -> Callable[..., int]:
    """Options that demo and matrix share."""
    for option in (
        click.option("--seeds", type=WholeNumber(min=1), default=10, show_default=True, help="Runs per fault."),
        click.option("--fault", "faults", multiple=True, help="Only these faults; may be given again."),
        click.option(
            "--results", type=click.Path(path_type=Path), default=None, help="JSON lines; continued if there."
        ),
        click.option(
            "--keep", type=click.Path(path_type=Path), default=None, help="Keep runs that did not agree here."
        ),
        click.option(
            "--no-steps", is_flag=True, help="Ranks note no optimizer steps: iterations are found by operations."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print all results as JSON."),
    ):
        function = option(function)
    return function


@command.command("demo")
@click.option("--slow", is_flag=True, help="The slowdowns, in each magnitude, instead of hangs and failures.")
@campaign_options
def demo(
    slow: bool, seeds: int, faults: tuple[str, ...], results: Path | None, keep: Path | None, no_steps: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Every fault and every healthy run of the demo, several seeds each; prints the accuracy table."""
    from whichrank.testbed.bench.campaign import demo_plan, slow_plan

    plan = slow_plan(seeds, faults) if slow else demo_plan(seeds, faults=faults)
    path = results or Path(f"whichrank-out/bench-{'slow' if slow else 'demo'}.jsonl")
    return _campaign(plan, path, keep, no_steps=no_steps, as_json=as_json)


@command.command("matrix")
@campaign_options
def matrix(
    seeds: int, faults: tuple[str, ...], results: Path | None, keep: Path | None, no_steps: bool, as_json: bool
) -> int:
    """Death, async and skew matrix; prints the accuracy table."""
    from whichrank.testbed.bench.campaign import matrix_plan

    path = results or Path("whichrank-out/bench-matrix.jsonl")
    return _campaign(matrix_plan(seeds, faults), path, keep, no_steps=no_steps, as_json=as_json)


@command.command("overhead")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.option("--quick", is_flag=True, help="Small n, a few minutes: see that it works.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="Only this part; may be given again.")
def overhead(as_json: bool, quick: bool, names: tuple[str, ...]) -> int:
    """What whichrank costs, from a ring push to a training step; prints the table.

    Takes about twenty minutes, and wants a machine that does nothing else.

    \b
    Parts: ring      ring push, trace ID, operation, memory of a rank
           sensor    each sensor per operation, switched on and off in one process
           agent     its CPU and memory
           analyzer  ingest, location and tick by the size of the job
           step      a training step whose computation fills the cores
           lab       DDP and 3D on four nodes of the lab
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.testbed.bench.overhead import PARTS, measure
    from whichrank.testbed.bench.tables import overhead_table

    if unknown := [name for name in names if name not in PARTS]:
        raise UsageError(f"there is no part '{unknown[0]}'", mend=f"--only {'|'.join(PARTS)}")
    chosen = [name for name in PARTS if not names or name in names]
    with progress_bar() as progress:
        bars = {name: progress.add_task(PARTS[name].title, total=1.0) for name in chosen}
        results = measure(
            chosen,
            quick=quick,
            show_progress=lambda name, share: progress.update(bars[name], completed=share, refresh=True),
        )
    click.echo(msgspec.json.encode(results).decode() if as_json else overhead_table(results))
    return 5 if results["skipped"] else 0


def _campaign(plan: list[Any], path: Path, keep: Path | None, *, no_steps: bool, as_json: bool) -> int:
    import dataclasses

    import msgspec

    from whichrank.sensors.c10d import torch_folder
    from whichrank.testbed.bench.campaign import done_in, key_of, run_campaign
    from whichrank.testbed.bench.tables import accuracy_table

    plan = [dataclasses.replace(setup, has_steps=not no_steps) for setup in plan]
    torch_folder()  # without torch every trial would only say that no fault was done
    with progress_bar() as progress:
        bar = progress.add_task("trials", total=len(plan))

        def show_progress(number: int, total: int, result: Any) -> None:
            progress.update(bar, completed=number)
            after = "" if result.seconds_to_alert is None else f" {result.seconds_to_alert:.1f} s"
            progress.console.print(f"{number}/{total} {result.fault} seed {result.seed}: {result.verdict}{after}")

        for _ in run_campaign(plan, path, keep, show_progress):
            pass
    known = done_in(path)
    ours = [known[key] for key in (key_of(msgspec.to_builtins(s)) for s in plan) if key in known]
    click.echo(msgspec.json.encode(ours).decode() if as_json else accuracy_table(ours))
    return 0 if all(r["agree"] for r in ours) else 1


for _part in (dumps, iterations, logs, reading, fail_slow, gate, mitigate, paper, scale):
    command.add_command(_part)
