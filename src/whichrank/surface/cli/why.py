"""`whichrank why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whichrank.model.incident import Incident
    from whichrank.surface.incidents_file import Reading

EXIT_HANG, EXIT_SLOW, EXIT_INCOMPLETE = 3, 4, 5
_COLOUR = {"alert": "red", "notice": "yellow"}


@click.command(name="why")
@click.argument("target", metavar="[DIR|ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the incidents as one JSON array.")
def command(target: str | None, as_json: bool) -> int:
    """Say again what whichrank found in a job.

    DIR is the folder of a run (default: the newest in whichrank-out/), ID an incident.

    Exit codes: 0 no alert, 3 a hang or failure, 4 a slowdown, 5 no alert but the record is damaged.
    """
    from whichrank.surface.incidents_file import find_reading

    reading = find_reading(target)
    if as_json:
        _print_json(reading.incidents)
    else:
        _print_text(reading)
    for fault in reading.faults:
        click.echo(f"whichrank: {fault}", err=True)
    return exit_code(reading)


def exit_code(reading: Reading) -> int:
    """The worst that the record tells; notices are no alarm."""
    alerts = {incident.kind for incident in reading.incidents if incident.severity == "alert"}
    if alerts & {"hang", "failed"}:
        return EXIT_HANG
    if "slow" in alerts:
        return EXIT_SLOW
    return EXIT_INCOMPLETE if reading.faults else 0


def _print_json(incidents: Iterable[Incident]) -> None:
    from whichrank.model.incident import encode_incident

    click.echo(b"[" + b",\n ".join(encode_incident(incident) for incident in incidents) + b"]")


def _print_text(reading: Reading) -> None:
    from whichrank.surface.text import headline, paragraph

    if not reading.incidents:
        click.echo(f"No incident in {reading.path}.")
        return
    for incident in reading.incidents:
        title = f"{headline(incident)}  [{incident.id}]"
        click.echo(click.style(title, fg=_COLOUR[incident.severity], bold=True))
        click.echo(paragraph(incident) + "\n")
