"""`whichrank stacks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whichrank.model.plain_text import as_name, one_line
from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import show, show_json, talk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichrank.model.frames import Fold
    from whichrank.surface.run.stacks_of_job import RankStacks

EXIT_INCOMPLETE = 5


@click.command(name="stacks")
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--suspects", is_flag=True, help="Only ranks that an incident names, or that the others wait for.")
@click.option("--rank", type=WholeNumber(min=0), metavar="N", help="Only this rank.")
@click.option("--all-frames", is_flag=True, help="Also those of installed packages and of Python itself.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def command(job: str | None, suspects: bool, rank: int | None, all_frames: bool, as_json: bool) -> int:
    """Print the Python stacks of the ranks of a running job on this node.

    The innermost line of your own code stands first; what it calls in packages is folded into one line. JOB is the
    name of the job (default: the newest one; with --suspects all). The ranks are paused for some milliseconds each.

    Exit codes: 0 all stacks were read, 5 some could not be, or an alert is open and nobody that it names was found.
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.surface.pipe import reader_may_leave
    from whichrank.surface.run.stacks_of_job import running_jobs, stacks_of, stacks_of_suspects, unread_rings

    if suspects and rank is not None:
        raise UsageError("--suspects and --rank exclude each other")
    folders = running_jobs(job)
    elsewhere: list[str] = []
    if suspects:
        found, elsewhere = stacks_of_suspects(job)
    else:
        if len(folders) > 1:  # the newest that has ranks
            folders = [next((folder for folder in folders if folder.rings()), folders[0])]
        found = stacks_of(folders[0], rank=rank)
    jobs = {entry.job for entry in found}
    with reader_may_leave():
        if as_json:
            show_json(msgspec.json.encode(found))
        else:
            for entry in found:
                _print(entry, of_job=len(jobs) > 1, all_frames=all_frames)
    if not found and not as_json:
        where = f"job {folders[0].job}" if len(folders) == 1 else f"{len(folders)} jobs"
        show(f"no {'suspect' if suspects else 'rank'} in {where} on this node", err=True)
    unread = [sentence for folder in folders for sentence in unread_rings(folder)] + elsewhere
    for sentence in unread:
        talk(sentence)
    return EXIT_INCOMPLETE if unread or any(entry.refused for entry in found) else 0


def _print(entry: RankStacks, *, of_job: bool, all_frames: bool) -> None:
    name = f"rank {entry.rank} of job {entry.job}" if of_job else f"rank {entry.rank}"
    show(f"{name} (pid {entry.pid}, {entry.state})", bold=True)
    if entry.refused:
        show(f"  {one_line(entry.refused)}")
    for stack in entry.stacks:
        gil = ", holds the GIL" if stack.holds_gil else ""
        show(f"  {one_line(stack.thread)}{gil}{' asleep' if stack.asleep else ''}")
        for line in stack.frames if all_frames else _folded(stack.frames):
            show(f"    {as_name(line)}")
    show()


def _folded(frames: Sequence[str]) -> list[str]:
    """The user's own frames, the innermost first; of what they call in packages one line, indented."""
    from whichrank.model.frames import folds_of

    folds = folds_of(frames)
    if not any(fold.is_own for fold in folds):
        return [*frames[:1], *([f"  ... {len(frames) - 1} more (--all-frames)"] if len(frames) > 1 else [])]
    inside = [] if folds[0].is_own else [f"  in it: {folds[0].frames[0]}, {_count(folds[0])}"]
    lines: list[str] = []
    for fold in folds if folds[0].is_own else folds[1:]:
        lines += fold.frames if fold.is_own else [f"  ... {_count(fold)}"]
    return [lines[0], *inside, *lines[1:]]


def _count(fold: Fold) -> str:
    frames = "1 frame" if len(fold.frames) == 1 else f"{len(fold.frames)} frames"
    return f"{frames} of {fold.package}"
