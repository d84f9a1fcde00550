"""`whichrank bench fail-slow`: which method finds that a job has become slow, or well again?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import progress_bar, talk

_FOLDER = click.Path(path_type=Path)


@click.command("fail-slow")
@click.option("--series", type=WholeNumber(1, 10_000), default=50, show_default=True, help="Simulated, of each kind.")
@click.option("--seed", type=int, default=7, show_default=True, help="Of the simulation.")
@click.option("--annotated", type=_FOLDER, help="A folder of series with change points that people have marked.")
@click.option("--recorded", type=_FOLDER, help="A folder that --record has written.")
@click.option("--record", "record_to", type=_FOLDER, help="Record runs of the lab here, and do nothing else.")
@click.option("--runs", type=WholeNumber(1, 10_000), default=51, show_default=True, help="Of --record, in all.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def fail_slow(
    series: int, seed: int, annotated: Path | None, recorded: Path | None, record_to: Path | None, runs: int,
    as_json: bool,
) -> int:  # fmt: skip
    """Change points of iteration times: sliding window, BOCD, CUSUM, PELT and ours; prints Greyhound's tables 3 and 4.

    Simulated series, recorded and annotated ones have a table each. A run of the lab gives eight series and takes about
    a minute; recording goes on where it was stopped.
    """
    if record_to:
        return _record(record_to, runs)
    import msgspec

    from whichrank.surface.leave import leave_on_signals
    from whichrank.testbed.bench.fail_slow import table
    from whichrank.testbed.bench.fail_slow.annotated import read_annotated
    from whichrank.testbed.bench.fail_slow.methods import require_ruptures
    from whichrank.testbed.bench.fail_slow.series import read_series
    from whichrank.testbed.bench.fail_slow.simulated import simulate

    leave_on_signals()
    require_ruptures()  # now, and not after minutes
    by_people = read_annotated(annotated) if annotated else []
    quiet, busy, faint = table.sort_recorded(read_series(recorded) if recorded else [])
    results: dict[str, Any] = {}
    with progress_bar() as progress:
        bars: dict[str, Any] = {}

        def show(source: str) -> table.Progress:
            def show_progress(method: str, done: int, total: int) -> None:
                name = f"{source}: {table.TITLES[method]}"
                if name not in bars:
                    bars[name] = progress.add_task(name, total=total)
                progress.update(bars[name], completed=done)

            return show_progress

        results["simulated"] = table.score_all(simulate(series, seed), show("simulated"))
        for name, some in (("recorded", quiet), ("recorded_busy", busy)):
            if some:
                results[name] = table.score_all(some, show(name))
        if by_people:
            results["annotated"] = table.agree_all(by_people, show("annotated"))
        results["cost"] = table.bank_cost(1 << 16)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode({**results, "recorded_faint": len(faint)}) + b"\n")
        return 0
    parts = [table.DEFINITIONS, table.score_table("Simulated", results["simulated"])]
    parts.append(table.recorded_sentence(len(quiet), len(busy), len(faint)))
    titles = {"recorded": "Recorded, quiet machine", "recorded_busy": "Recorded beside other programs"}
    for name, some in (("recorded", quiet), ("recorded_busy", busy)):
        if some:
            parts.append(table.score_table(titles[name], results[name], len({one.run for one in some})))
    parts.append(table.agreement_table(results["annotated"]) if by_people else table.NO_ANNOTATED)
    parts.append(table.cost_line(results["cost"]))
    click.echo("\n\n".join(parts))
    return 0


def _record(folder: Path, runs: int) -> int:
    from whichrank.sensors.c10d import torch_folder
    from whichrank.surface.leave import leave_on_signals
    from whichrank.testbed.bench.fail_slow.lab_runs import record
    from whichrank.testbed.lab.box import remove_abandoned
    from whichrank.testbed.lab.userspace import become_root_of_a_namespace

    torch_folder()  # without torch no run would begin
    become_root_of_a_namespace(sys.argv[1:])
    remove_abandoned()
    leave_on_signals()
    with progress_bar() as progress:
        bar = progress.add_task("runs", total=runs)

        def show_progress(number: int, sentence: str) -> None:
            progress.update(bar, completed=number + 1)
            talk(sentence)

        record(folder, runs, show_progress)
    return 0
