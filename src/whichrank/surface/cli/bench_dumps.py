"""`whichrank bench dumps` and `reading`: readers of recordings, side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from whichrank.surface.numbers import WholeNumber


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

    from whichrank.sensors.c10d import torch_folder
    from whichrank.surface.terminal import progress_bar
    from whichrank.testbed.bench.dumps.cases import cases
    from whichrank.testbed.bench.dumps.compare import compare_all, table_of

    torch_folder()  # torchfrtrace comes with torch
    chosen = [case for case in cases() if not wanted or any(text in case.name for text in wanted)]
    folders = [_recorded(text) for text in recorded]
    with progress_bar() as progress:
        bar = progress.add_task("folders", total=len(chosen) + len(folders))
        results = list(compare_all(chosen, folders, lambda _: progress.advance(bar)))
    click.echo(msgspec.json.encode(results).decode() if as_json else table_of(results))
    return 0 if all(result.readers["whichrank"].verdict in ("right", "unnamed") for result in results) else 1


def _recorded(text: str) -> Any:
    from whichrank.errors import UsageError
    from whichrank.testbed.bench.dumps.compare import recorded

    path, _, ranks = text.rpartition("=")
    if not Path(path).is_dir() or not all(rank.isdecimal() for rank in ranks.split(",")):
        raise UsageError(f"'{text}' is no folder with its culprits", mend="--recorded DIR=9,14")
    return recorded(Path(path), tuple(map(int, ranks.split(","))))


@click.command()
@click.option(
    "--entries", type=WholeNumber(1, 100_000), default=2000, show_default=True, help="Of each of 1,024 dumps."
)
@click.option("--trace-mb", type=WholeNumber(1, 10_000), default=1000, show_default=True, help="Of the trace.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def reading(entries: int, trace_mb: int, as_json: bool) -> int:
    """Read large recordings: time and memory, beside what others take for the same files; prints the table.

    Takes about five minutes and some gigabytes in the folder for temporary files; it wants an idle machine. With
    Chromium the page of a large report is opened too.
    """
    import tempfile

    import msgspec

    from whichrank.sensors.c10d import torch_folder
    from whichrank.surface.terminal import progress_bar
    from whichrank.testbed.bench.dumps.large import (
        LAYOUT,
        read_dumps,
        read_trace,
        reading_table,
        write_dumps,
        write_trace,
    )
    from whichrank.testbed.bench.dumps.pages import browser, open_page

    torch_folder()  # torchfrtrace comes with torch
    with progress_bar() as progress, tempfile.TemporaryDirectory(prefix="whichrank-reading-") as folder:
        dumps, trace = Path(folder) / "dumps", Path(folder) / "trace.json"
        dumps.mkdir()
        names = ("write dumps", "write trace", "read", "page")
        bars = {name: progress.add_task(name, total=None) for name in names}

        def show_progress(name: str) -> Callable[[int, int], None]:
            return lambda done, total: progress.update(bars[name], completed=done, total=total)

        write_dumps(dumps, entries, LAYOUT, show_progress("write dumps"))
        write_trace(trace, trace_mb * 10**6, show_progress("write trace"))
        results = read_dumps(dumps, entries)
        show_progress("read")(1, 2)
        results += read_trace(trace)
        show_progress("read")(2, 2)
        if program := browser():
            results += open_page(program, show_progress("page"))
        else:
            progress.update(bars["page"], description="page: left out, there is no Chromium", completed=1, total=1)
    click.echo(msgspec.json.encode(results).decode() if as_json else reading_table(results))
    return 0
