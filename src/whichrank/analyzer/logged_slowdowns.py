"""Incidents of a log that says how long iterations took: when they became longer. Such a log names no rank."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from whichrank.model.evidence import ITERATION, Evidence
from whichrank.model.incident import Cause, Incident, Stage
from whichrank.model.logged_iterations import Attempt, LoggedIterations
from whichrank.slow.logged import Episode, Level, episodes_of

MOST: Final = 16
"""Incidents, the worst of all; a log with more has no level."""
MOST_LEVELS: Final = 8
"""Of one slowness that are listed, the first ones."""
NEXT: Final = (
    "such a log cannot say which rank it is; run again with  whichrank run -- torchrun ...  which names it while it is "
    "slow",
    "or record some steps of all ranks with PyTorch's profiler:  whichrank analyze traces/",
)
_DIGITS: Final = 4
"""Of a number that is reported: more is noise."""


def slowdowns_in(logged: LoggedIterations, job: str, now: datetime) -> list[Incident]:
    """An incident for each time in which iterations of the last attempt took longer, in order.

    Args:
        logged: What the log says.
        job: Its name.
        now: UTC.
    """
    if not logged.attempts:
        return []
    attempt = logged.attempts[-1]
    episodes = episodes_of(attempt)
    if len(episodes) > MOST:
        worst = sorted(episodes, key=lambda one: one.worst / one.before)[-MOST:]
        episodes = [one for one in episodes if one in worst]
    names = (f"{job}-iterations-{place}" for place in range(1, len(episodes) + 1))
    return [_incident(one, attempt, logged, name, job, now) for one, name in zip(episodes, names, strict=True)]


def _incident(
    episode: Episode, attempt: Attempt, logged: LoggedIterations, name: str, job: str, now: datetime
) -> Incident:
    onset = episode.levels[0]
    what = ITERATION if logged.unit == "s" else "time of a sample"
    evidence = [
        _value(what, onset, attempt, logged),
        Evidence(what=f"{what} before", value=_rounded(episode.before), unit=logged.unit),
        Evidence(what=f"{what}, worst level", value=round(episode.worst / episode.before, 2), unit="times that before"),
        *(_value(f"{what} later", level, attempt, logged) for level in episode.levels[1:MOST_LEVELS]),
    ]
    if episode.relief:
        evidence.append(_value(f"{what} after it", episode.relief, attempt, logged))
        ratio = round(episode.relief.value / episode.before, 2)
        evidence.append(Evidence(what=f"{what} after it, in proportion", value=ratio, unit="times that before"))
    else:
        evidence.append(Evidence(what="lasts until", value=f"iteration {attempt.number[-1]:,}, the last in the log"))
    return Incident(
        id=name, job=job, severity="alert", status="final", kind="slow", cause=Cause.UNKNOWN,
        stage=Stage(iteration=int(attempt.number[onset.first])), detected=now, evidence=tuple(evidence),
        next=NEXT, complete=True,
    )  # fmt: skip


def _value(what: str, level: Level, attempt: Attempt, logged: LoggedIterations) -> Evidence:
    at = attempt.at[level.first]
    where = f"from iteration {attempt.number[level.first]:,}" + (f", logged at {at}" if at else "")
    return Evidence(what=what, value=_rounded(level.value), unit=logged.unit, where=where)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
