"""`whichrank bench paper`: the tables and plots of MegaTrace's evaluation, on simulated jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import progress_bar

_RESULTS = Path("whichrank-out/bench-paper.jsonl")


@click.command()
@click.option("--runs", type=WholeNumber(1, 10_000), default=200, show_default=True, help="Of each cell.")
@click.option("--only", "names", multiple=True, metavar="CELL", help="Only this cell; may be given again.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=_RESULTS, show_default=True,
    help="JSON lines; continued if there.",
)  # fmt: skip
@click.option("--plots", type=click.Path(path_type=Path), help="Draw both plots into this folder, and do nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def paper(runs: int, names: tuple[str, ...], results: Path, plots: Path | None, as_json: bool) -> int:
    """Recall, precision and F1 for hangs and slow ranks, of ours and of other methods on the same simulated jobs.

    Other methods are our readings of papers, and not their authors' code. A run takes about half a second. With
    --plots: by how much each block may grow before the iteration does, and recall and precision over both thresholds
    of the drill-down.

    \b
    Cells: hang, lost transfer, slow 5 %, slow 10 %, slow 20 %, slow 50 %, slow 2x, slow 3x, slow 5x, slow 10x,
           slow by delay, healthy, imbalance
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.testbed.bench.paper.cells import CELLS
    from whichrank.testbed.bench.paper.runs import Result, run_all
    from whichrank.testbed.bench.paper.table import summary, tables

    if plots:
        return _draw(plots, runs, as_json)
    if unknown := [name for name in names if name not in CELLS]:
        raise UsageError(f"there is no cell '{unknown[0]}'", where=", ".join(CELLS), mend="--only 'slow 2x'")
    chosen = [name for name in CELLS if not names or name in names]
    with progress_bar() as progress:
        bar = progress.add_task("runs", total=runs * len(chosen))

        def show_progress(_: Result) -> None:
            progress.advance(bar)

        found = run_all(chosen, runs, results, show_progress)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode({"cells": summary(found), "runs": found}) + b"\n")
    else:
        click.echo(tables(found))
    return 0


def _draw(folder: Path, runs: int, as_json: bool) -> int:
    import msgspec

    from whichrank.testbed.bench.paper.plots import draw_all

    with progress_bar() as progress:
        bars: dict[str, Any] = {}

        def show_progress(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total)
            progress.update(bars[name], completed=done)

        written = draw_all(folder, runs, show_progress)
    if as_json:
        click.echo(msgspec.json.encode({"files": [str(path) for path in written]}).decode())
    else:
        click.echo("\n".join(map(str, written)))
    return 0
