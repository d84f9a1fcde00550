"""One schedule of slowness, with whichrank and without: table 6 and figure 20 of Greyhound.

Ten ranks become slow and well again, and two times the cable between leaves does, some at one time. The schedule is
drawn; whichrank is not told of it. The same job runs with `--mitigate auto` and without whichrank at all.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from whichrank.testbed.bench.mitigate.places import RATES, USUAL, limit_between_leaves, network_of
from whichrank.testbed.bench.mitigate.runs import Run, Shape
from whichrank.testbed.bench.mitigate.shares import SEVERITIES

SHAPE: Final = Shape(stages=2, replicas=2, each=8, microbatch_ms=20.0, gradient_mib=2.0, replicas_first=True)
COMPUTE: Final = ("weak",) * 3 + ("medium",) * 5 + ("severe",) * 2
LINKS: Final = ("severe", "severe")
EVERY_S: Final = 30.0
"""From one onset to the next."""
LASTS_S: Final = (15.0, 40.0)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One slowness."""

    at_s: float
    until_s: float
    severity: str
    rank: int
    """-1: the cable between leaves."""


class EventsResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the schedule."""

    events: tuple[Event, ...]
    lasted_s: float
    healthy_s: float
    """Of an iteration, before the first event."""
    iterations: int
    iterations_without: int
    found: int
    """Events during which an alert named the rank, or links between leaves."""
    found_after_s: tuple[float, ...]
    wrong_names: int
    """Alerts that named a rank that was not slow then."""
    steps: int
    """That were made, taking back counted."""

    @property
    def ratio(self) -> float:
        """Throughput with whichrank over that without."""
        return self.iterations / self.iterations_without


def schedule(seed: int) -> tuple[Event, ...]:
    """Drawn: order, ranks, how long, and where two fall together."""
    rng = np.random.default_rng(seed)
    kinds = [(severity, int(rng.integers(SHAPE.ranks))) for severity in COMPUTE] + [(one, -1) for one in LINKS]
    events, at_s = [], 5.0
    for severity, rank in [kinds[at] for at in rng.permutation(len(kinds))]:
        lasts_s = float(rng.uniform(*LASTS_S))
        events.append(Event(at_s=at_s, until_s=at_s + lasts_s, severity=severity, rank=rank))
        at_s += EVERY_S
    return tuple(events)


def try_events(seed: int, show_progress: Callable[[float], None]) -> EventsResult:
    """Run the job twice.

    Args:
        seed: Of the schedule.
        show_progress: Called with the share that is done.

    Raises:
        SensorError: The job fails.
        NoLabError: No network can be made here.
    """
    events = schedule(seed)
    with tempfile.TemporaryDirectory(prefix="whichrank-mitigate-") as name:
        without, _, _ = _run(events, Path(name), "", lambda done: show_progress(0.5 * done))
    with tempfile.TemporaryDirectory(prefix="whichrank-mitigate-") as name:
        folder = Path(name)
        done, began_s, healthy_s = _run(events, folder, "auto", lambda share: show_progress(0.5 + 0.5 * share))
        found_after_s, wrong = _found(events, folder, began_s)
        steps = Run(SHAPE, folder).lines()
    return EventsResult(
        events=events, lasted_s=_lasts_s(events), healthy_s=healthy_s, iterations=done, iterations_without=without,
        found=len(found_after_s), found_after_s=tuple(found_after_s), wrong_names=wrong,
        steps=sum(line.what == "made" for line in steps),
    )  # fmt: skip


def _lasts_s(events: Sequence[Event]) -> float:
    return max(event.until_s for event in events) + 10.0


def _run(
    events: Sequence[Event], folder: Path, mode: str, show_progress: Callable[[float], None]
) -> tuple[int, float, float]:
    """Iterations in the time of the schedule, when that began, and what a healthy iteration took."""
    with network_of(SHAPE.ranks) as network, Run(SHAPE, folder, mode, network) as run:
        run.trains_well()
        began_s, lasts_s = time.time(), _lasts_s(events)
        healthy_s, now = run.median_s(began_s - 5.0, began_s), set[Event]()
        while (at_s := time.time() - began_s) < lasts_s:
            active = {event for event in events if event.at_s <= at_s < event.until_s}
            if active != now:
                links = [event.severity for event in active if event.rank < 0]
                limit_between_leaves(network, RATES[links[0]] if links else USUAL)
                run.slow({event.rank: SEVERITIES[event.severity] for event in active if event.rank >= 0})
                now = active
            run.until(lambda: True, "the end of the schedule")
            show_progress(at_s / lasts_s)
            time.sleep(0.05)
        done = sum(began_s <= one["at"] <= began_s + lasts_s for one in run.iterations(0))
        run.finish()
    return done, began_s, healthy_s


def _found(events: Sequence[Event], folder: Path, began_s: float) -> tuple[list[float], int]:
    """Of each event that was found, how long that took; and how many alerts named a rank that was not slow."""
    alerts = [one for one in Run(SHAPE, folder).incidents() if one.severity == "alert"]
    named = [
        (one.detected.timestamp() - began_s, {c.rank for c in one.culprits}, bool(one.links)) for one in alerts
    ]  # fmt: skip
    after_s = []
    for event in events:
        hits = [
            at_s - event.at_s
            for at_s, ranks, has_links in named
            if event.at_s <= at_s <= event.until_s + 5.0 and (event.rank in ranks or (event.rank < 0 and has_links))
        ]
        after_s += hits[:1]
    wrong = sum(
        bool(ranks - {event.rank for event in events if event.at_s <= at_s <= event.until_s + 5.0})
        for at_s, ranks, _ in named
    )
    return after_s, wrong


def events_table(results: Sequence[EventsResult]) -> str:
    """A line for each schedule."""
    lines = [
        "| events | found | after, mean | alerts with a wrong rank | steps | iterations a minute, healthy | without"
        " | with | ratio |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in results:
        minutes = one.lasted_s / 60.0
        after = f"{np.mean(one.found_after_s):.1f} s" if one.found_after_s else "-"
        lines.append(
            f"| {len(one.events)} | {one.found} | {after} | {one.wrong_names} | {one.steps} | {60 / one.healthy_s:.0f}"
            f" | {one.iterations_without / minutes:.0f} | {one.iterations / minutes:.0f} | {one.ratio:.2f} |"
        )
    return "\n".join(lines)
