"""`whichrank bench logs`: logs with a known culprit, and what is said of them."""

from __future__ import annotations

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import progress_bar


@click.command()
@click.option("--count", type=WholeNumber(1, 1_000_000), default=3200, show_default=True, help="Logs.")
@click.option("--first", type=WholeNumber(0), default=0, show_default=True, help="Number of the first one.")
@click.option(
    "--speed",
    type=WholeNumber(1, 8000),
    metavar="MB",
    help="Instead, read one log of this size of each kind, and print how long that takes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def logs(count: int, first: int, speed: int | None, as_json: bool) -> int:
    """Make logs of hung jobs by version, prefix, fault and damage, read them, and count what is said; prints the table.

    Each number makes the same log on every machine. Exit code 0: no healthy rank is named; 1: one is.
    """
    if speed is not None:
        return _speed(speed, as_json)
    import msgspec

    from whichrank.server.analyze import analyze
    from whichrank.testbed.bench.logs.made import make
    from whichrank.testbed.bench.logs.score import score_all, table_of

    with progress_bar() as progress:
        bar = progress.add_task("logs", total=count)
        results = score_all(map(make, range(first, first + count)), analyze, lambda: progress.advance(bar))
    click.echo(msgspec.json.encode(results).decode() if as_json else table_of(results))
    return 1 if any(one.said == "wrong name" for one in results) else 0


def _speed(size_mb: int, as_json: bool) -> int:
    import tempfile
    from pathlib import Path

    import msgspec

    from whichrank.testbed.bench.logs.speed import KINDS, measure, table_of

    with progress_bar() as progress, tempfile.TemporaryDirectory(prefix="whichrank-logs-") as name:
        bar = progress.add_task("kinds of logs", total=len(KINDS))
        took = measure(Path(name), size_mb * 1_000_000, lambda: progress.advance(bar))
    click.echo(msgspec.json.encode(took).decode() if as_json else table_of(took))
    return 0
