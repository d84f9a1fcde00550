"""`whichrank bench dumps`: readers of Flight Recorder dumps, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.option("--case", "wanted", multiple=True, metavar="TEXT", help="Only cases whose name has this; again for more.")
@click.option(
    "--recorded", multiple=True, metavar="DIR=RANKS", help="Recorded dumps too, and who is at fault: DIR=9,14."
)
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def dumps(wanted: tuple[str, ...], recorded: tuple[str, ...], as_json: bool) -> int:
    """Read dumps of the Flight Recorder side by side with torchfrtrace; prints the table.

    The dumps are of jobs that are played through by a program, and whatever is named with --recorded.
    """
    import msgspec

    from whichrank.bench.dumps.cases import cases
    from whichrank.bench.dumps.compare import compare_all, table_of
    from whichrank.sensors.c10d import torch_folder
    from whichrank.surface.cli.bench import progress_bar

    torch_folder()  # torchfrtrace comes with torch
    chosen = [case for case in cases() if not wanted or any(text in case.name for text in wanted)]
    folders = [_recorded(text) for text in recorded]
    with progress_bar() as progress:
        bar = progress.add_task("folders", total=len(chosen) + len(folders))
        results = list(compare_all(chosen, folders, lambda _: progress.advance(bar)))
    click.echo(msgspec.json.encode(results).decode() if as_json else table_of(results))
    return 0 if all(result.readers["whichrank"].verdict in ("right", "unnamed") for result in results) else 1


def _recorded(text: str) -> Any:
    from whichrank.bench.dumps.compare import recorded
    from whichrank.errors import UsageError

    path, _, ranks = text.rpartition("=")
    if not Path(path).is_dir() or not all(rank.isdecimal() for rank in ranks.split(",")):
        raise UsageError(f"'{text}' is no folder with its culprits", mend="--recorded DIR=9,14")
    return recorded(Path(path), tuple(map(int, ranks.split(","))))
