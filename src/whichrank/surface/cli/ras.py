"""`whichrank ras`."""

from __future__ import annotations

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import show, show_json


@click.command(name="ras")
@click.argument("place", metavar="[HOST:PORT]", default="localhost:28028")
@click.option("--polls", "count", type=WholeNumber(2, 1000), default=2, show_default=True, help="So many.")
@click.option("--every", "every_s", type=float, default=10.0, show_default=True, help="Seconds between two polls.")
@click.option("--json", "as_json", is_flag=True, help="Print {incidents, behind, unresponsive} as JSON.")
def command(place: str, count: int, every_s: float, as_json: bool) -> int:
    """Ask NCCL's RAS of a running job who is behind, and say who is waited for if the job stands still.

    RAS counts what hosts have launched, so one snapshot says little: a host that runs ahead is so for a moment in any
    job. Several polls that find the same unequal counts name those that have launched less. Ranks that hang in one and
    the same operation look healthy to RAS.

    Exit codes: 0 nothing found, 3 a hang, 5 RAS does not answer.
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.intake.by_kind import of_ras
    from whichrank.intake.ras import standing_still
    from whichrank.server.analyze import analyze
    from whichrank.surface.ask_ras import place_of, polls
    from whichrank.surface.cli.why import exit_code_of, print_text
    from whichrank.surface.terminal import progress_bar

    if not 0 < every_s <= 3600:
        raise UsageError(f"{every_s:g} s between two polls is not possible", mend="--every 10")
    at = place_of(place)
    seen = []
    with progress_bar() as progress:
        bar = progress.add_task("polls", total=count)
        for one in polls(at, count, every_s, timeout_s=30.0):
            seen.append(one)
            progress.advance(bar)
    last, still = seen[-1], standing_still(seen)
    recording = of_ras(still, "job") if still else None
    incidents = analyze(recording) if recording else ()
    if as_json:
        said = {"incidents": incidents, "behind": last.behind, "unresponsive": last.unresponsive}
        show_json(msgspec.json.encode(said))
        return exit_code_of(incidents)
    print_text(incidents)
    if last.unresponsive:
        show(f"Ranks that do not answer: {', '.join(map(str, last.unresponsive))}")
    if not incidents:
        ahead = f"{len(last.behind)} of {last.world_size} ranks have launched less than others" if last.behind else ""
        moves = "and the job goes on" if last.behind else "All ranks have launched equally much"
        show(f"{ahead}, {moves}." if ahead else f"{moves}.")
    return exit_code_of(incidents)
