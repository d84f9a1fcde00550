"""`whichrank replay`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="replay")
@click.argument("path", metavar="DIR|TAPE", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the incidents as one JSON array.")
def command(path: Path, as_json: bool) -> int:
    """Go through the recording of a run again, and say what whichrank finds in it now.

    `whichrank run --record` keeps one in DIR. With the whichrank that recorded it, the verdict is the one that it gave
    live; stderr says whether it is. Exit codes as in `why`: 0 no alert, 3 a hang or failure, 4 a slowdown, 5 no alert
    but the recording is cut.
    """
    from whichrank.surface.cli.why import EXIT_INCOMPLETE, exit_code_of, print_json, print_text
    from whichrank.surface.incidents_file import FILE_NAME, read_incidents
    from whichrank.surface.pipe import reader_may_leave
    from whichrank.surface.replay import replay, tape_at

    replayed = replay(path)
    with reader_may_leave():
        if as_json:
            print_json(replayed.incidents)
        elif replayed.incidents:
            print_text(replayed.incidents)
        else:
            click.echo(f"No incident in {tape_at(path)}.")
    live = tape_at(path).with_name(FILE_NAME)
    if live.exists():
        same = read_incidents(live).incidents == replayed.incidents
        click.echo(f"whichrank: {'as it was said live' if same else f'not as it was said live, in {live}'}", err=True)
    if not replayed.is_whole:
        click.echo("whichrank: the recording ends within an entry; what is whole was used", err=True)
    return exit_code_of(replayed.incidents) or (0 if replayed.is_whole else EXIT_INCOMPLETE)
