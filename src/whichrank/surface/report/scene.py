"""What surrounded one incident when it was reported: who waited, the operations around it, the iterations then.

A run may have several incidents, and by its end nobody waits any more. So each is captured when the analyzer reports
it, and shows nothing of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from whichrank.analyzer import Analyzer
from whichrank.hang.who_waits import Waiting, who_waits
from whichrank.locate.critical_path import Repaired
from whichrank.model.incident import Incident, Spent
from whichrank.model.links import LinkRate
from whichrank.model.picture import Floats, Ints, Picture
from whichrank.model.telemetry import Stack
from whichrank.stage.blocks import Blocks, before_and_after
from whichrank.stage.gains import Gain, gains
from whichrank.surface.report.spans import SPAN, STEP, SpanBuffer, Spans, open_spans

MOST_LANES: Final = 64
"""Ranks whose operations are shown: more lines cannot be told apart on a screen."""
MOST_SCENE_SPANS: Final = 40_000
MOST_ITERATIONS: Final = 64
MOST_STACKS: Final = 16
ITERATIONS_BEFORE: Final = 3
OPERATIONS_BEFORE: Final = 24
"""Of a usual rank, where it is not known how long an iteration takes."""
AFTER: Final = 0.6
"""The part behind the onset, as a share of the part before it."""
MOST_AFTER: Final = 2.0
"""The same, where ranks enter later what they wait in."""
MARGIN: Final = 0.3
"""Behind the last of them."""
LEAST_VIEW_S: Final = 1e-3
MESSAGES: Final = ("send", "recv", "recv_any")

_NO_RANKS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Heat:
    """Iterations of ranks.

    Attributes:
        ranks: Rows.
        iterations: Columns.
        ends_s: When each iteration ended on the first of the ranks, on the analyzer's clock.
        own_s: Seconds of each rank's own in each iteration.
        blocked_s: The rest of it.
    """

    ranks: Ints = field(default_factory=lambda: _NO_RANKS)
    iterations: Ints = field(default_factory=lambda: _NO_RANKS)
    ends_s: Floats = field(default_factory=lambda: np.zeros(0))
    own_s: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    blocked_s: Floats = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True)
class Scene:
    """What surrounded an incident. All times are seconds on the analyzer's clock.

    Attributes:
        waits: Who waited for whom; each rank once.
        round: Communicator and counter of the operation in which it shows, and whether that is a message; None where it
            has none.
        view_s: From when to when operations are shown.
        lanes: Ranks whose operations are shown, ascending.
        spans: Their operations in that time, rows of SPAN, and what they entered later and had not left.
        steps: Beginnings of iterations of one rank in that time, rows of STEP.
        heat: Iterations.
        times: Where they went.
        links: Rates from rank to rank between nodes.
        stacks: Of ranks.
        gains: What fixing a rank, a node or a pipeline stage would buy; empty where that is not known.
        blocks: A usual iteration as it was, and as it would have been without what is slow; None where not known.
    """

    waits: tuple[Waiting, ...] = ()
    round: tuple[int, int, bool] | None = None
    view_s: tuple[float, float] = (0.0, 0.0)
    lanes: Ints = field(default_factory=lambda: _NO_RANKS)
    spans: Spans = field(default_factory=lambda: np.zeros(0, SPAN))
    steps: Spans = field(default_factory=lambda: np.zeros(0, STEP))
    heat: Heat = field(default_factory=Heat)
    times: tuple[Spent, ...] = ()
    links: tuple[LinkRate, ...] = ()
    stacks: dict[int, list[Stack]] = field(default_factory=dict)
    gains: tuple[Gain, ...] = ()
    blocks: tuple[Blocks, Blocks] | None = None


def capture(
    analyzer: Analyzer, spans: SpanBuffer, incident: Incident | None, now_s: float, before: Scene | None = None
) -> Scene:
    """What surrounds an incident, or a whole job where there is none.

    Args:
        analyzer: It has just reported the incident.
        spans: Operations until now.
        incident: Its last word; None where a job has none.
        now_s: The analyzer's time.
        before: The scene of an earlier word on the same incident. Who waited is kept once the incident is over.
    """
    picture = analyzer.store.picture(now_s)
    waits = before.waits if before else ()
    if not before or (incident and incident.status == "open"):
        waits = who_waits(analyzer.case, picture) or waits
    onset_s = _onset_s(analyzer, incident)
    under_way = open_spans(picture.ops, now_s)
    view_s = _view_s(analyzer, spans.all(), under_way, onset_s, now_s)
    lanes = _lanes(picture, incident, waits)
    shown = np.concatenate((spans.all(), under_way))
    is_near = (shown["end_s"] >= view_s[0]) & ((shown["start_s"] <= view_s[1]) | shown["open"])
    shown = shown[is_near & np.isin(shown["rank"], lanes)]
    if before and spans.since_s > view_s[0]:  # by now some of these operations were dropped
        view_s, lanes, shown, steps = before.view_s, before.lanes, before.spans, before.steps
    else:
        steps = _steps(spans, lanes, view_s)
        shown = np.concatenate((shown, _lost_since(before, shown))) if before else shown
    is_slow = incident is None or incident.kind == "slow"
    repaired, store = _repaired(analyzer, incident), analyzer.store
    bought = gains(repaired.now, repaired.position, store.host, repaired.since, store.comms.name) if repaired else None
    return Scene(
        waits=waits,
        round=_round(analyzer, incident),
        view_s=view_s,
        lanes=lanes,
        spans=shown[np.argsort(shown["start_s"], kind="stable")][-MOST_SCENE_SPANS:],
        steps=steps,
        heat=_heat(analyzer, picture) if is_slow else Heat(),
        times=analyzer.times if is_slow else (),
        links=analyzer.links,
        stacks=before.stacks if before else {},
        gains=bought if bought is not None else before.gains if before else (),
        blocks=(before_and_after(repaired, lanes) if repaired else None) or (before.blocks if before else None),
    )


def with_stacks(
    scene: Scene, stacks: Sequence[tuple[float, int, list[Stack]]], since_s: float, until_s: float
) -> Scene:
    """With the latest stacks of each rank that were taken in this time.

    Args:
        scene: Of an incident.
        stacks: When they were taken, of which rank, and what they are; in the order in which they came.
        since_s: From when.
        until_s: To when.
    """
    taken = {rank: of for at_s, rank, of in stacks if since_s <= at_s <= until_s}
    return replace(scene, stacks=dict(sorted(taken.items())[:MOST_STACKS]))


def named_in(incident: Incident) -> list[int]:
    """Culprits and candidates."""
    return [one.rank for one in (*incident.culprits, *incident.candidates)]


def _onset_s(analyzer: Analyzer, incident: Incident | None) -> float | None:
    if incident is None or incident.onset is None:
        return None
    return incident.onset.timestamp() - analyzer.ledger.utc(0.0).timestamp()


def _view_s(
    analyzer: Analyzer, spans: Spans, under_way: Spans, onset_s: float | None, now_s: float
) -> tuple[float, float]:  # fmt: skip
    """Some iterations before the onset and a part behind it, or the latest ones.

    Ranks enter the operations in which they then wait one after the other: all of that is shown, if it does not take
    much longer than what is shown before it.
    """
    if not len(spans) and len(under_way):
        first_s, last_s = float(under_way["start_s"].min()), float(under_way["start_s"].max())
        margin_s = max(MARGIN * (last_s - first_s), LEAST_VIEW_S)
        return first_s - margin_s, last_s + margin_s
    last_s = float(spans["end_s"].max()) if len(spans) else now_s
    at_s = last_s if onset_s is None else onset_s
    before_s = max(ITERATIONS_BEFORE * analyzer.store.iteration_s() or _operations_s(spans, at_s), LEAST_VIEW_S)
    if onset_s is None:
        return at_s - before_s, at_s
    entered_s = under_way["start_s"][under_way["start_s"] < at_s + MOST_AFTER * before_s]
    last_s = float(entered_s.max(initial=at_s)) + MARGIN * before_s
    return at_s - before_s, max(at_s + AFTER * before_s, last_s)


def _operations_s(spans: Spans, at_s: float) -> float:
    """How long ago a usual rank began its latest operations before this moment."""
    earlier = spans[spans["start_s"] < at_s]
    ranks = len(np.unique(earlier["rank"]))
    if not ranks:
        return 0.0
    count = min(OPERATIONS_BEFORE * ranks, len(earlier))
    return at_s - float(np.partition(earlier["start_s"], len(earlier) - count)[len(earlier) - count])


def _lanes(picture: Picture, incident: Incident | None, waits: Sequence[Waiting]) -> Ints:
    """All ranks of a small job. Of a large one those that are named, those that wait for them, and some of the rest."""
    every = np.arange(picture.world_size)
    if len(every) <= MOST_LANES:
        return every
    first = named_in(incident) + [end for link in incident.links for end in (link.src, link.dst)] if incident else []
    chosen = dict.fromkeys(first[: MOST_LANES // 2])
    nearest = np.sort(np.concatenate([_NO_RANKS, *(one.ranks for one in waits if one.distance == 1)]))
    for ranks, most in ((nearest, MOST_LANES // 2), (every, MOST_LANES)):
        left = np.setdiff1d(ranks, list(chosen))
        room = max(0, most - len(chosen))
        at = np.unique(np.linspace(0, len(left) - 1, min(room, len(left))).astype(np.int64))
        chosen.update(dict.fromkeys(left[at].tolist()))
    return np.array(sorted(chosen), np.int64)


def _lost_since(before: Scene, shown: Spans) -> Spans:
    """What was under way before, and is not among these operations: it has ended, and its record did not come."""
    names = ["rank", "comm", "kind", "counter"]
    was_open = before.spans[before.spans["open"]]
    lost: Spans = was_open[~np.isin(was_open[names], shown[names])]
    return lost


def _steps(spans: SpanBuffer, lanes: Ints, view_s: tuple[float, float]) -> Spans:
    """Of the first shown rank that has any."""
    steps = spans.steps()
    steps = steps[(steps["at_s"] >= view_s[0]) & (steps["at_s"] <= view_s[1]) & np.isin(steps["rank"], lanes)]
    return steps[steps["rank"] == steps["rank"].min()] if len(steps) else steps


def _round(analyzer: Analyzer, incident: Incident | None) -> tuple[int, int, bool] | None:
    if not incident or not incident.op or not incident.op.trace_id:
        return None
    comm_id, _, counter = incident.op.trace_id.partition("-")
    comm = int(analyzer.store.comms.index(np.array([int(comm_id, 16)], np.uint64))[0])
    return (comm, int(counter), incident.op.kind in MESSAGES) if comm >= 0 else None


def _repaired(analyzer: Analyzer, incident: Incident | None) -> Repaired | None:
    """Iterations with and without what is slow, while it is so; None if that is what another incident is about."""
    repaired = analyzer.slowness.repaired
    if repaired is None or incident is None or incident.kind != "slow" or incident.status != "open":
        return None
    mended, named = repaired.mended, named_in(incident)
    is_of_it = bool(set(mended).intersection(named)) if mended else bool(incident.links)
    return repaired if is_of_it else None


def _heat(analyzer: Analyzer, picture: Picture) -> Heat:
    window = analyzer.slowness.iterations.window(np.flatnonzero(picture.present), np.inf, 1)
    if window is None:
        return Heat()
    last = slice(-MOST_ITERATIONS, None)
    own_s: NDArray[np.float64] = window.own_s[:, last]
    ends_s = window.end_ns[0, last] / 1e9 + analyzer.store.ranks.offset_s[window.ranks[0]]
    return Heat(window.ranks, window.iteration[last], ends_s, own_s, window.total_s[:, last] - own_s)
