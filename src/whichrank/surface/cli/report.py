"""`whichrank report`."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.surface.redact_option import redact_option, redacted_by
from whichrank.surface.terminal import progress_bar, talk


@click.command(name="report")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True, help="The page."
)
@click.option(
    "--layout",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A configuration of the job, to be held against its communicators: Megatron's arguments, or the log that"
    " prints them, torchtitan's TOML, DeepSpeed's JSON, or a TOML with a [layout] table. Nothing of it is run.",
)
@redact_option
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def command(paths: tuple[Path, ...], output: Path, layout: Path | None, redact: str | None, force: bool) -> int:
    """Make one HTML file of a job that can be mailed: each incident with who waits for whom, operations and evidence.

    PATH is the folder of a run, or recordings of others as `analyze` takes them. Default: the run that `why` shows. Of
    a run without `whichrank run --record` the page has what was reported, and says what is missing. It needs no network
    and no script, and opens in any browser.

    Exit codes are those of `analyze`.
    """
    from whichrank.surface.cli.why import EXIT_INCOMPLETE, exit_code_of
    from whichrank.surface.leave import ended_at_once, leave_on_signals
    from whichrank.surface.output_file import refuse_existing, refuse_read, write_output

    with ended_at_once():
        from whichrank.intake.recording import UNKNOWN
        from whichrank.surface.configuration import configuration_at
        from whichrank.surface.find_record import paths_or_newest
        from whichrank.surface.report.make import gather
        from whichrank.surface.report.page import page_of

    left_out = redacted_by(redact)
    paths = tuple(paths_or_newest(paths))
    refuse_read(output, paths)
    if not force:
        refuse_existing(output)
    configured = configuration_at(layout) if layout else None
    leave_on_signals()
    with progress_bar() as progress:
        bar = progress.add_task("read", total=None)
        source = gather(
            paths, left_out, lambda done, total: progress.update(bar, completed=done, total=total),
            configured=configured,
        )  # fmt: skip
    page = page_of(source.gathered, source.notes).encode()
    write_output(output, page)
    talk(f"{output} ({len(page) >> 10} KiB)")
    for said in (source.gathered.missing, source.damage):
        if said:
            talk(said)
    unknown = next((one.incidents for one in source.gathered.earlier if one.number == UNKNOWN), ())
    return exit_code_of(source.gathered.incidents or unknown) or (0 if source.is_complete else EXIT_INCOMPLETE)
