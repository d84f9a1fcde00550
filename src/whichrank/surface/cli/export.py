"""`whichrank export`."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.surface.terminal import talk

FORMATS = ("perfetto", "json", "csv")


@click.command(name="export")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), default="perfetto", show_default=True, help="Of the file."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file; stdout if not given.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def command(paths: tuple[Path, ...], kind: str, output: Path | None, force: bool) -> int:
    """Write the operations of all ranks in a format that other programs open.

    PATH is the folder of a run that was recorded with `whichrank run --record`, or recordings of others as `analyze`
    takes them. Perfetto (ui.perfetto.dev) shows a lane for each rank and communicator, and an arrow through each round.
    """
    import sys

    from whichrank.surface.leave import ended_at_once, leave_on_signals
    from whichrank.surface.output_file import refuse_existing, write_output
    from whichrank.surface.pipe import reader_may_leave

    with ended_at_once():
        from whichrank.surface.cli.bench import progress_bar
        from whichrank.surface.export.perfetto import trace_of
        from whichrank.surface.export.tables import csv_of, json_of
        from whichrank.surface.report.make import gather

    if output is not None and not force:
        refuse_existing(output)
    leave_on_signals()
    with progress_bar() as progress:
        bar = progress.add_task("read", total=None)
        gathered = gather(paths, lambda done, total: progress.update(bar, completed=done, total=total))
    data = {"perfetto": trace_of, "json": json_of, "csv": csv_of}[kind](gathered)
    if output is None:
        with reader_may_leave():
            sys.stdout.buffer.write(data)
        return 0
    write_output(output, data)
    talk(f"{output} ({len(data) >> 10} KiB, {len(gathered.spans):,} operations)")
    return 0
