"""`whichrank bench mitigate`: what acting on something slow gains, in real jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from whichrank.surface.numbers import WholeNumber
from whichrank.surface.terminal import progress_bar

PARTS = ("split", "histories", "losses", "shares", "places", "handover", "events")


@click.command()
@click.option("--only", "parts", multiple=True, metavar="PART", help="Only this part; may be given again.")
@click.option("--seed", type=WholeNumber(min=0), default=1, show_default=True, help="Of what is drawn.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
def mitigate(parts: tuple[str, ...], seed: int, as_json: bool) -> int:
    """Slow real jobs down, and act on it; prints a table for each part.

    \b
        split      how long the best split of microbatches takes to be found
        histories  the planner against who knows when slowness ends (computed)
        losses     what is trained with shares that change, against even ones
        shares     other shares of the work, by severity and by how many are slow
        places     other places for ranks, over nodes of a lab (needs root)
        handover   states from rank to rank, against checkpoint and restart
        events     a schedule of twelve slownesses, with and without (needs root)

    All parts take about 55 minutes. Exit code 0, whatever they gain.
    """
    import msgspec

    from whichrank.errors import UsageError
    from whichrank.sensors.c10d import torch_folder

    if unknown := [part for part in parts if part not in PARTS]:
        raise UsageError(f"there is no part '{unknown[0]}'", mend=f"--only {'|'.join(PARTS)}")
    torch_folder()  # without torch no job begins
    found: dict[str, Any] = {}
    with progress_bar() as progress:
        for part in [part for part in PARTS if not parts or part in parts]:
            bar = progress.add_task(part, total=1.0)
            found[part] = _tried(part, seed, lambda share, bar=bar: progress.update(bar, completed=share))  # type: ignore[misc]
            progress.update(bar, completed=1.0)
    if as_json:
        click.echo(msgspec.json.encode({part: results for part, (results, _) in found.items()}).decode())
    else:
        click.echo("\n\n".join(f"{part}\n\n{table}" for part, (_, table) in found.items()))
    return 0


def _tried(part: str, seed: int, show_progress: Callable[[float], None]) -> tuple[Sequence[Any], str]:
    """Results and their table."""
    if part == "split":
        from whichrank.testbed.bench.mitigate.split import split_table, time_splits

        splits = time_splits(seed)
        return splits, split_table(splits)
    if part == "histories":
        from whichrank.testbed.bench.mitigate.histories import histories_table, replay_histories

        histories = replay_histories(seed)
        return histories, histories_table(histories)
    if part == "losses":
        from whichrank.testbed.bench.mitigate import losses

        trained = losses.try_all(seed, show_progress)
        return trained, losses.losses_table(trained)
    if part == "handover":
        from whichrank.testbed.bench.mitigate import handover

        handed = handover.try_all(show_progress)
        return handed, handover.handover_table(handed)
    if part == "events":
        from whichrank.testbed.bench.mitigate.events import events_table, try_events

        events = [try_events(seed, show_progress)]
        return events, events_table(events)
    if part == "shares":
        from whichrank.testbed.bench.mitigate import shares

        plans = shares.plans()
        tried = [
            shares.try_shares(*plan, lambda share, at=at: show_progress((at + share) / len(plans)))  # type: ignore[misc]
            for at, plan in enumerate(plans)
        ]
        return tried, shares.shares_table(tried)
    from whichrank.testbed.bench.mitigate import places

    of_places = places.plans()
    moved = [
        places.try_places(*plan, lambda share, at=at: show_progress((at + share) / len(of_places)))  # type: ignore[misc]
        for at, plan in enumerate(of_places)
    ]
    return moved, places.places_table(moved)
