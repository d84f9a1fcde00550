"""`whichrank why`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from whichrank.surface.terminal import show, show_error, show_json, talk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whichrank.model.incident import Incident
    from whichrank.server.incidents_file import Reading
    from whichrank.surface.find_record import Found

EXIT_HANG, EXIT_SLOW, EXIT_INCOMPLETE = 3, 4, 5
_COLOUR = {"alert": "red", "notice": "yellow"}
_MOST_IDS = 8


@click.command(name="why")
@click.argument("target", metavar="[DIR|ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the incidents as one JSON array.")
def command(target: str | None, as_json: bool) -> int:
    """Say again what whichrank found in a job.

    DIR is the folder of a run, ID an incident (DIR/ID where it lies elsewhere). Default: a job that runs on this node
    and has an incident, else the newest run in whichrank-out/.

    Exit codes: 0 no alert, 3 a hang or failure, 4 a slowdown, 5 no alert but the record is damaged.
    """
    from whichrank.surface.find_record import find_record
    from whichrank.surface.pipe import reader_may_leave

    found = find_record(target)
    reading = found.reading
    with reader_may_leave():
        if as_json:
            print_json(reading.incidents)
        elif reading.incidents:
            print_text(reading.incidents)
        else:
            of_job = f" of job {reading.job}" if reading.older else ""
            show(f"No incident{of_job} in {reading.path}.")
    for sentence in (*_others(found), *_older(reading)):
        talk(sentence)
    for fault in reading.faults:
        show_error(fault)
    return exit_code(reading)


def exit_code(reading: Reading) -> int:
    """The worst that the record says."""
    return exit_code_of(reading.incidents) or (EXIT_INCOMPLETE if reading.faults else 0)


def exit_code_of(incidents: Iterable[Incident]) -> int:
    """The worst of them; notices are no alarm."""
    alerts = {incident.kind for incident in incidents if incident.severity == "alert"}
    if alerts & {"hang", "failed"}:
        return EXIT_HANG
    return EXIT_SLOW if "slow" in alerts else 0


def _others(found: Found) -> list[str]:
    """A line on the jobs that run here and are not reported."""
    if found.healthy:
        folders = ", ".join(map(str, found.healthy))
        return [f"no job that runs here has an incident ({folders}); this is of an older run"]
    if not found.others:
        return []
    commands = "; ".join(f"whichrank why {shlex.quote(str(folder))}" for folder in found.others)
    count = len(found.others) + 1
    return [f"{count} running jobs have incidents; these are of {found.reading.job}. The others: {commands}"]


def _older(reading: Reading) -> list[str]:
    """A line on the incidents of the jobs that wrote into this file before."""
    if not reading.older:
        return []
    from whichrank.verdict.words.text import of_jobs

    ids = [incident.id for incident in reading.older]
    listed = ", ".join(ids[:_MOST_IDS]) + (f" and {len(ids) - _MOST_IDS} more" if len(ids) > _MOST_IDS else "")
    how = f"whichrank why {shlex.quote(str(reading.path.parent))}/ID, where ID is one of {listed}"
    return [f"the file also holds {of_jobs(reading.older)}; to see one: {how}"]


def print_json(incidents: Iterable[Incident]) -> None:
    """As one array, an incident a line."""
    from whichrank.model.incident import encode_incident

    show_json(b"[" + b",\n ".join(encode_incident(incident) for incident in incidents) + b"]")


def print_text(incidents: Iterable[Incident]) -> None:
    """Each with its headline and its paragraph; on a terminal in lines that fit."""
    import sys

    from whichrank.surface.lines import for_stream
    from whichrank.verdict.words.text import headline, paragraph

    for incident in incidents:
        title = for_stream(f"{headline(incident)}  [{incident.id}]", sys.stdout)
        show(title, colour=_COLOUR[incident.severity], bold=True)
        show(for_stream(paragraph(incident), sys.stdout) + "\n")
