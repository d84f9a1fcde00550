"""Who waits for whom in one incident: the ranks that it names, those that wait for them, those that wait for those.

The numbers add up to the count that the verdict has in words: each victim stands in one box. Where no operation is
known in which a victim waits, it stands in a box that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from whichrank.hang.who_waits import Waiting, among
from whichrank.model.incident import Incident
from whichrank.model.picture import Ints
from whichrank.surface.report.html import Html, el, join
from whichrank.surface.report.scene import Scene, named_in
from whichrank.surface.report.units import counted, ranges
from whichrank.verdict.words.phrases import why_of

MOST_BOXES: Final = 6
"""Of one step; the other ranks of the step share one more."""
MOST_NAMED: Final = 4
"""Ranks at the end of the chain that get a sentence of their own."""


def chain(incident: Incident, scene: Scene) -> Html | None:
    """The steps, the ranks that the incident names first; None where nobody waits.

    Args:
        incident: A hang or a failure.
        scene: What surrounded it.
    """
    victims = _victims(incident, scene)
    total = max(incident.victims.count, len(victims))
    if not total:
        return None
    is_over = incident.status != "open"
    waits = among(scene.waits, victims)
    placed = np.sort(np.concatenate([np.zeros(0, np.int64), *(one.ranks for one in waits)]))
    steps = [_end(incident)]
    others = _others(waits, placed, incident)
    if len(others):
        steps.append(_step("", [_box(f"rank{'s' * (len(others) > 1)} {ranges(others)}", "waited for, too; not named")]))
    distances = sorted({one.distance for one in waits} - {0}) + [0] * any(one.distance == 0 for one in waits)
    for distance in distances:
        of_step = [one for one in waits if one.distance == distance]
        steps.append(_step(_arrow(of_step, distance, incident, has_others=len(others) > 0), _boxes(of_step, is_over)))
    left = np.setdiff1d(victims, placed)
    if len(left) or total > len(victims):
        count = total - len(placed)
        said = f"{counted(count)} {_verb(count, is_over)} in operations that are not recorded"
        steps.append(_step(said, [_box(f"rank{'s' * (len(left) > 1)} {ranges(left)}", "")] if len(left) else []))
    return el("div", _sum(waits, total, is_over, has_others=len(others) > 0), el("ol", *steps, class_="chain"))


def _victims(incident: Incident, scene: Scene) -> Ints:
    """All of them; of a very large job the incident lists only some, and who waits says the rest."""
    listed = np.array(sorted(incident.victims.ranks), np.int64)
    if incident.victims.count <= len(listed):
        return listed
    waiting = np.concatenate([listed, *(one.ranks for one in scene.waits)])
    return np.setdiff1d(waiting, [one.rank for one in incident.culprits])


def _others(waits: Sequence[Waiting], placed: Ints, incident: Incident) -> Ints:
    """Ranks that others wait for, and that stand nowhere else in the chain."""
    targets = np.concatenate([np.zeros(0, np.int64), *(one.targets for one in waits)])
    return np.setdiff1d(targets, np.concatenate((placed, np.array(named_in(incident), np.int64))))


def _sum(waits: Sequence[Waiting], total: int, is_over: bool, *, has_others: bool) -> Html:
    direct = sum(len(one.ranks) for one in waits if one.distance == 1)
    said = f"{counted(total)} {_verb(total, is_over)}"
    if 0 < direct < total:
        whom = f"for ranks that {'waited' if is_over else 'wait'} for nobody" if has_others else "directly"
        said += f": {direct:,} {whom}, {total - direct:,} for ranks that {'waited' if is_over else 'wait'} themselves"
    return el("p", f"{said}.", class_="soft")


def _verb(count: int, is_over: bool) -> str:
    return "waited" if is_over else "waits" if count == 1 else "wait"


def _end(incident: Incident) -> Html:
    """The ranks that the incident names."""
    named = incident.culprits or incident.candidates
    if not named:
        return _step("", [_box("No rank is named", "", class_="box end open")])
    what = "culprit" if incident.culprits else "candidate; the evidence does not decide"
    boxes = []
    for one in named[:MOST_NAMED]:
        why = why_of(incident, one)
        boxes.append(_box(f"rank {one.rank}", f"{what}: {why}" if why else what, class_="box end"))
    if len(named) > MOST_NAMED:
        rest = np.array(sorted(one.rank for one in named[MOST_NAMED:]), np.int64)
        boxes.append(_box(f"{counted(len(rest))}: {ranges(rest)}", what, class_="box end"))
    return _step("", boxes)


def _arrow(of_step: Sequence[Waiting], distance: int, incident: Incident, *, has_others: bool) -> str:
    count = sum(len(one.ranks) for one in of_step)
    said = f"{counted(count)} {_verb(count, incident.status != 'open')}"
    named = sorted(set(named_in(incident)))
    if distance == 1 and named:
        return f"{said} for {f'rank {named[0]}' if len(named) == 1 and not has_others else 'these ranks'}"
    if distance:
        return f"{said} for {'others' if distance == 1 else 'those'}"
    return f"{said} in a cycle, or in operations that all have entered"


def _boxes(of_step: Sequence[Waiting], is_over: bool) -> list[Html]:
    boxes = [_waiting(one, is_over) for one in of_step[:MOST_BOXES]]
    rest = of_step[MOST_BOXES:]
    if rest:
        ranks = np.sort(np.concatenate([one.ranks for one in rest]))
        operations = sum(one.operations for one in rest)
        boxes.append(_box(f"{counted(len(ranks))}: {ranges(ranks)}", f"in {counted(operations, 'other operation')}"))
    return boxes


def _waiting(one: Waiting, is_over: bool) -> Html:
    several = f" ({one.operations} operations)" if one.operations > 1 else ""
    if len(one.targets):
        for_whom = f"for rank{'s' * (len(one.targets) > 1)} {ranges(one.targets)}"
    else:
        for_whom = f"which all of its ranks {'had' if is_over else 'have'} entered"
    ranks = f"rank {int(one.ranks[0])}" if len(one.ranks) == 1 else f"{counted(len(one.ranks))}: {ranges(one.ranks)}"
    return _box(ranks, f"in {one.what}{several} {for_whom}")


def _step(arrow: str, boxes: Sequence[Html]) -> Html:
    return el("li", el("p", el("span", "↑ ", aria_hidden="true"), arrow, class_="arrow") if arrow else None,
              el("div", join(boxes), class_="boxes"))  # fmt: skip


def _box(title: str, text: str, class_: str = "box") -> Html:
    return el("div", el("b", title), text or None, class_=class_)
