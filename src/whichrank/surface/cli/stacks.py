"""`whichrank stacks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whichrank.surface.numbers import WholeNumber

if TYPE_CHECKING:
    from whichrank.surface.run.stacks_of_job import RankStacks

EXIT_INCOMPLETE = 5


@click.command(name="stacks")
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--suspects", is_flag=True, help="Only ranks that an incident names, or that the others wait for.")
@click.option("--rank", type=WholeNumber(min=0), metavar="N", help="Only this rank.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def command(job: str | None, suspects: bool, rank: int | None, as_json: bool) -> int:
    """Print the Python stacks of the ranks of a running job on this node.

    JOB is the name of the job (default: the newest one). The ranks are paused for some milliseconds each.

    Exit codes: 0 all stacks were read, 5 some could not be.
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.surface.pipe import reader_may_leave
    from whichrank.surface.run.stacks_of_job import find_job, stacks_of, unread_rings

    if suspects and rank is not None:
        raise UsageError("--suspects and --rank exclude each other")
    folder = find_job(job)
    found = stacks_of(folder, rank=rank, suspects=suspects)
    with reader_may_leave():
        if as_json:
            click.echo(msgspec.json.encode(found))
        else:
            for entry in found:
                _print(entry)
    if not found and not as_json:
        click.echo(f"no {'suspect' if suspects else 'rank'} in job {folder.job} on this node", err=True)
    unread = unread_rings(folder)
    for sentence in unread:
        click.echo(f"whichrank: {sentence}", err=True)
    return EXIT_INCOMPLETE if unread or any(entry.refused for entry in found) else 0


def _print(entry: RankStacks) -> None:
    click.echo(click.style(f"rank {entry.rank} (pid {entry.pid}, {entry.state})", bold=True))
    if entry.refused:
        click.echo(f"  {entry.refused}")
    for stack in entry.stacks:
        click.echo(f"  {stack.thread}{', holds the GIL' if stack.holds_gil else ''}{' asleep' if stack.asleep else ''}")
        for frame in stack.frames:
            click.echo(f"    {frame}")
    click.echo()
