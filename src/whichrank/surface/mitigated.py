"""What is done about something slow, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from whichrank.act.planner import Level
from whichrank.server.mitigations_file import Mitigated, MitigationNow, Planned, is_taken_back
from whichrank.verdict.words.amounts import duration

MOST: Final = 8
"""Replicas that are listed."""
LEVELS: Final = {
    Level.IGNORE: "nothing is changed",
    Level.REBALANCE: "other shares of the work",
    Level.TOPOLOGY: "other places for ranks",
    Level.RESTART: "a restart without the slow part",
}
_FORM: Final = {
    "shares": "replica {at} computes {after} microbatches instead of {before}",
    "places": "rank {after} takes the place of rank {before}",
}
_AS_BEFORE: Final = {
    "shares": "all replicas compute as many microbatches again",
    "places": "all ranks are in their first places again",
}
_BACK: Final = {
    "relief": "all are as quick as before",
    "no_gain": "it gains much less than expected",
    "by_hand": "somebody wanted that",
}


def sentence_of(line: Mitigated) -> str:
    """In one line."""
    return f"mitigation {line.step}: {said(line)}" if line.step else f"mitigation: {said(line)}"


def said(line: Mitigated) -> str:
    """The same, without its number."""
    if line.what == "measured":
        return (
            f"an iteration takes {duration(line.measured_s or 0.0)}; it took {duration(line.now_s)}, and"
            f" {duration(line.predicted_s)} was expected"
        )
    if line.what == "saved":
        return f"all ranks have written a checkpoint, {duration(line.overhead_s)} after they were told to"
    if line.what == "refused":
        return f"not done: {line.problem}"
    if line.what == "undone":
        return line.problem
    if is_taken_back(line):
        return f"{_AS_BEFORE[line.changes]}, since {_BACK.get(line.why, line.why)}"
    gains = f"an iteration takes {duration(line.now_s)} and would take {duration(line.predicted_s)}"
    listed = changes_text(line.changes, line.before, line.after)
    if line.what == "made":
        return f"{listed}, since {gains}"
    return f"it would help if {listed}: {gains}; to have it done: whichrank mitigate apply {line.step}"


def changes_text(what: str, before: Sequence[int], after: Sequence[int]) -> str:
    """What changes for replicas, or for ranks.

    Args:
        what: `shares` or `places`.
        before: Microbatches of each replica, or the rank in each place.
        after: The same from then on.
    """
    form = _FORM[what]
    changes = [
        form.format(at=at, before=until_now, after=now)
        for at, (until_now, now) in enumerate(zip(before, after, strict=True))
        if until_now != now
    ]
    return f"{', '.join(changes[:MOST])}{', and so on' * (len(changes) > MOST)}"


def now_line(now: MitigationNow) -> str:
    """How it is, in one line: what is changed, what the slowness has cost, and when more is done."""
    steps = f" (step {' and '.join(map(str, now.steps))})" if now.steps else ""
    changed = f"{LEVELS[Level(now.level)]}{steps}"
    takes = f"iterations take {duration(now.now_s)}, {duration(now.healthy_s)} if all is well"
    lost = f"lost so far {duration(now.impact_s)}"
    return f"mitigation: {changed}; {takes}; {lost}{_next(now)}"


def _next(now: MitigationNow) -> str:
    if now.plan is None:
        return ""
    name = f"{LEVELS[Level(now.plan.level)]} (step {now.plan.step})"
    if now.plan.waits or (now.mode == "advise" and now.impact_s >= now.plan.overhead_s):
        return f"; waits for a yes: whichrank mitigate apply {now.plan.step}"
    return f"; next, at {duration(now.plan.overhead_s)}: {name}"


def plan_lines(now: MitigationNow | None) -> Iterator[str]:
    """What would be done next, why, and what it costs."""
    if now is None or now.plan is None:
        yield "Nothing is planned: nothing is slow, or nothing would gain anything."
        return
    plan = now.plan
    yield f"step {plan.step}: {LEVELS[Level(plan.level)]}"
    what = "places" if plan.level == Level.TOPOLOGY else "shares"
    yield f"  {changes_text(what, plan.before, plan.after)}"
    yield f"  an iteration takes {duration(now.now_s)} and would take {duration(plan.predicted_s)}"
    yield f"  it costs {duration(plan.overhead_s)}, once; the slowness has cost {duration(now.impact_s)} so far"
    yield f"  {_when(now, plan)}"


def _when(now: MitigationNow, plan: Planned) -> str:
    by_hand = f"whichrank mitigate apply {plan.step}"
    if plan.waits:
        return f"it waits for a yes: {by_hand}"
    if now.mode == "auto":
        return f"it is done when the slowness has cost as much; to have it done now: {by_hand}"
    return f"to have it done: {by_hand}"
