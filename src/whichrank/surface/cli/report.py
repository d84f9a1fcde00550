"""`whichrank report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.surface.terminal import talk

if TYPE_CHECKING:
    from whichrank.surface.report.page import Redacted


@click.command(name="report")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True, help="The page."
)
@click.option(
    "--redact", default="", metavar="hosts,paths", help="Leave out names of hosts, folders of files, or both."
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def command(paths: tuple[Path, ...], output: Path, redact: str, force: bool) -> int:
    """Make one HTML file of a job that can be mailed: verdicts, who waits for whom, operations over time, evidence.

    PATH is the folder of a run that was recorded with `whichrank run --record`, or recordings of others as `analyze`
    takes them. The page needs no network and opens in any browser.

    Exit codes are those of `analyze`.
    """
    from whichrank.surface.cli.why import EXIT_INCOMPLETE, exit_code_of
    from whichrank.surface.leave import ended_at_once, leave_on_signals
    from whichrank.surface.output_file import refuse_existing, write_output

    with ended_at_once():
        from whichrank.surface.cli.bench import progress_bar
        from whichrank.surface.report.make import make_report

    if not force:
        refuse_existing(output)
    leave_on_signals()
    with progress_bar() as progress:
        bar = progress.add_task("read", total=None)
        page, incidents, is_complete = make_report(
            paths, _redacted(redact), lambda done, total: progress.update(bar, completed=done, total=total)
        )
    write_output(output, page.encode())
    talk(f"{output} ({len(page) >> 10} KiB)")
    return exit_code_of(incidents) or (0 if is_complete else EXIT_INCOMPLETE)


def _redacted(text: str) -> list[Redacted]:
    from whichrank.errors import UsageError
    from whichrank.surface.report.page import REDACTABLE

    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in REDACTABLE]:
        raise UsageError(f"'{unknown[0]}' cannot be left out", mend=f"--redact {','.join(REDACTABLE)}")
    return [name for name in REDACTABLE if name in wanted]
