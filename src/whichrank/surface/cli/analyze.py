"""`whichrank analyze`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichrank.intake.recording import Note, Recording


@click.command(name="analyze")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print {incidents, intake} as JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> int:
    """Say what recordings of a job tell: who hangs it, and why.

    PATH is a file, a folder, or an archive (.tar, .gz, .xz, .zst), whatever it is called. Read are dumps of PyTorch's
    Flight Recorder, pickle or JSON. Files that are none are passed over; what of a job is missing or damaged is said,
    and the rest is used.

    Exit codes: 0 nothing found, 3 a hang, 4 a slowdown, 5 nothing found but ranks are missing, or nothing to read.
    """
    import msgspec

    from whichrank.intake.read import read
    from whichrank.surface.analyze import analyze
    from whichrank.surface.cli.bench import progress_bar
    from whichrank.surface.cli.why import EXIT_INCOMPLETE, exit_code_of, print_text
    from whichrank.surface.pipe import reader_may_leave

    with progress_bar() as progress:
        bar = progress.add_task("files", total=None)
        recording = read(paths, lambda done, total: progress.update(bar, completed=done, total=total))
        incidents = analyze(recording)
    with reader_may_leave():
        if as_json:
            click.echo(msgspec.json.encode({"incidents": incidents, "intake": recording.notes}))
        elif incidents:
            print_text(incidents)
        else:
            click.echo("Nobody waits for anybody in this recording: no hang is in it.")
    for sentence in _sentences(recording):
        click.echo(f"whichrank: {sentence}", err=True)
    return exit_code_of(incidents) or (EXIT_INCOMPLETE if recording.unread else 0)


def _sentences(recording: Recording) -> list[str]:
    """What was read, what was not, and what would help."""
    used = [note for note in recording.notes if note.state == "read"]
    sentences = [f"read: {len(used)} dumps of the Flight Recorder"]
    sentences += [f"'{note.path}' was not used: {note.what}" for note in _first(recording.notes)]
    if recording.unread:
        ranks = ", ".join(map(str, list(recording.unread)[:16])) + (", ..." if len(recording.unread) > 16 else "")
        sentences.append(f"nothing is known of rank {ranks}; a dump of each would tell more")
    return sentences


def _first(notes: Sequence[Note], most: int = 8) -> list[Note]:
    return [note for note in notes if note.state in ("empty", "damaged")][:most]
