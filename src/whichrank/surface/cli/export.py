"""`whichrank export`."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.redact_option import redact_option, redacted_by
from whichrank.surface.terminal import talk

FORMATS = ("perfetto", "json", "csv")


@click.command(name="export")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), default="perfetto", show_default=True, help="Of the file."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file; stdout if not given.")
@click.option(
    "--max-mib",
    type=WholeNumber(min=1),
    default=1024,
    show_default=True,
    metavar="N",
    help="Size, at most.",
)
@redact_option
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def command(
    paths: tuple[Path, ...], kind: str, output: Path | None, max_mib: int, redact: str | None, force: bool
) -> int:
    """Write the operations of all ranks in a format that other programs open.

    PATH is the folder of a run, or recordings of others as `analyze` takes them. Default: the run that `why` shows.
    Perfetto (ui.perfetto.dev) shows tracks for each rank and communicator, and an arrow through each round. Operations
    are there if the run was recorded with `whichrank run --record`. Where they do not fit the size, the latest are
    written, and those of ranks that an incident names.
    """
    import sys

    from whichrank.surface.leave import ended_at_once, leave_on_signals
    from whichrank.surface.output_file import refuse_existing, refuse_read, write_output
    from whichrank.surface.pipe import reader_may_leave

    with ended_at_once():
        from whichrank.errors import UsageError
        from whichrank.surface.cli.why import EXIT_INCOMPLETE
        from whichrank.surface.export.limit import most_spans, sentence, within
        from whichrank.surface.export.perfetto import trace_of
        from whichrank.surface.export.tables import csv_of, json_of
        from whichrank.surface.find_record import paths_or_newest
        from whichrank.surface.report.make import gather
        from whichrank.surface.terminal import progress_bar

    left_out = redacted_by(redact)
    paths = tuple(paths_or_newest(paths))
    if output is not None:
        refuse_read(output, paths)
        if not force:
            refuse_existing(output)
    leave_on_signals()
    with progress_bar() as progress:
        bar = progress.add_task("read", total=None)
        source = gather(
            paths, left_out, lambda done, total: progress.update(bar, completed=done, total=total),
            most_spans(max_mib),
        )  # fmt: skip
    if kind == "perfetto" and len(source.gathered.spans) and not source.gathered.has_times:
        raise UsageError(
            "the recording does not say when operations began or ended, so there is no timeline",
            mend="--format csv writes in which order each rank issued them",
        )
    export = {"perfetto": trace_of, "json": json_of, "csv": csv_of}[kind]
    gathered, cut = within(source.gathered, export, max_mib << 20)
    if output is None:
        with reader_may_leave():
            for piece in export(gathered):
                sys.stdout.buffer.write(piece)
    else:
        size = write_output(output, export(gathered))
        talk(f"{output} ({size >> 10} KiB, {len(gathered.spans):,} operations)")
    for said in (gathered.missing, source.damage, sentence(cut, max_mib) if cut else ""):
        if said:
            talk(said)
    return EXIT_INCOMPLETE if source.damage else 0
