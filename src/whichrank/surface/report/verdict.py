"""One incident, complete in itself: what is said, what to do, who waits, the operations around it, the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from whichrank.model.evidence import Evidence
from whichrank.model.incident import Cause, Culprit, Incident
from whichrank.model.telemetry import Stack
from whichrank.surface.report.blocks import gain_table, iteration_in_blocks
from whichrank.surface.report.chain import chain
from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.html import Html, el, join, section, table
from whichrank.surface.report.iterations import heat_maps, link_table, times
from whichrank.surface.report.lanes import View, lanes
from whichrank.surface.report.scene import Scene
from whichrank.surface.report.units import counted, moment
from whichrank.verdict.words.amounts import duration, number, ranges, size
from whichrank.verdict.words.details import next_steps, shown
from whichrank.verdict.words.phrases import why_of
from whichrank.verdict.words.text import headline, paragraph

MOST_LISTED: Final = 64


def article(gathered: Gathered, incident: Incident, scene: Scene | None, anchor: str) -> Html:
    """The part of a page that is about one incident.

    Args:
        gathered: The job.
        incident: One of its incidents.
        scene: What surrounded it; None where that was not kept.
        anchor: Its place in the page.
    """
    scene_is_there = scene is not None and bool(len(scene.spans))
    scene = scene or Scene()
    view = View(gathered, scene, incident)
    is_slow = incident.kind == "slow"
    waits = "Who waits for whom" if incident.status == "open" else "Who waited for whom"
    return el(
        "article",
        el("h2", headline(incident)),
        *_sentences(incident),
        _facts(gathered, incident, has_end=gathered.end_s is not None or not scene_is_there),
        _part(waits, None if is_slow else chain(incident, scene)),
        _part("Where an iteration goes", times(incident.times or scene.times, view.named) if is_slow else None),
        _part("What it costs", iteration_in_blocks(scene.blocks, incident, gathered.world_size)),
        _part("What fixing it would buy", gain_table(scene.gains, view.named)),
        _part("Operations" if is_slow or not gathered.has_times else "Operations around the onset", lanes(view)),
        _part("Iterations", heat_maps(scene.heat, view.named, gathered.utc_offset_s) if is_slow else None),
        _part("Who it is" if incident.culprits else "Who it may be", _named(incident)),
        _part("Links", _links(incident, scene)),
        _part("Evidence", _evidence(shown(incident.evidence))),
        _part("Stacks", stacks(scene.stacks, view.named)),
        class_=f"incident {incident.severity}",
        id=anchor,
    )


def short_article(gathered: Gathered, incident: Incident, anchor: str) -> Html:
    """The same of an earlier attempt, shorter: what is said, who it is, the evidence. Nothing is to be done any more.

    Args:
        gathered: The job.
        incident: Of the attempt.
        anchor: Its place in the page.
    """
    return el(
        "article",
        el("h3", headline(incident)),
        el("p", paragraph(incident).partition("\n")[0]),
        _facts(gathered, incident, has_end=True),
        _part("Who it was" if incident.culprits else "Who it may have been", _named(incident), level=4),
        _part("Evidence", _evidence(shown(incident.evidence)), level=4),
        class_=f"incident {incident.severity}",
        id=anchor,
    )


def _part(title: str, body: Html | None, level: int = 3) -> Html | None:
    return section(title, body, level=level) if body else None


def _sentences(incident: Incident) -> list[Html]:
    """What the verdict says, and what to do; what the tables below hold in full is left to them."""
    label = "To decide: " if incident.cause == Cause.UNKNOWN else "Next: "
    steps = [el("p", label, el("code", step), class_="todo") for step in next_steps(incident)]
    return [el("p", paragraph(incident).partition("\n")[0]), *steps]


def _facts(gathered: Gathered, incident: Incident, *, has_end: bool) -> Html:
    """When, where and of what this was seen."""
    rows: list[tuple[str, object]] = []
    if incident.onset:
        rows.append(("Began", moment(incident.onset)))
        if gathered.end_s is not None or gathered.missing:
            rows.append(("Reported", moment(incident.detected)))
    if incident.ended and incident.onset:
        lasted = duration((incident.ended - incident.onset).total_seconds())
        what = "Ended" if incident.status == "recovered" else "Job ended"
        rows.append((what, f"{moment(incident.ended)}, {lasted} after it began"))
    elif not has_end and incident.kind != "slow":
        rows.append(("Lasted", "not known: these recordings do not say when they were made"))
    if incident.op:
        facts = [size(incident.op.bytes) if incident.op.bytes is not None else None, incident.op.dtype]
        known = ", ".join(fact for fact in facts if fact)
        kind = "of a kind that is not known" if incident.op.kind == "other" else incident.op.kind
        rows.append(("Operation", kind + (f" ({known})" if known else "")))
    if incident.communicator:
        members = incident.communicator.members
        listed = f" of {counted(len(members))}: {ranges(members)}" if members else ""
        role = f" ({incident.communicator.role})" if incident.communicator.role else ""
        rows.append(("Communicator", f"{incident.communicator.name}{role}{listed}"))
    if incident.stage and incident.stage.iteration is not None:
        rows.append(("Iteration", f"{incident.stage.iteration:,}"))
    if incident.stage and incident.stage.phase:
        of_batch = f" of microbatch {incident.stage.microbatch}" if incident.stage.microbatch is not None else ""
        rows.append(("Phase", f"{incident.stage.phase}{of_batch}"))
    if not incident.complete:
        rows.append(("Missing", "of some ranks nothing was read"))
    rows.append(("Incident", incident.id))
    return el("dl", *(join((el("dt", name), el("dd", value))) for name, value in rows))


def _named(incident: Incident) -> Html | None:
    tables = [_of_ranks("culprit", incident.culprits, incident), _of_ranks("candidate", incident.candidates, incident)]
    known = [one for one in tables if one is not None]
    return join(known) if known else None


def _of_ranks(what: str, named: Sequence[Culprit], incident: Incident) -> Html | None:
    if not named:
        return None
    rows = [
        [el("b", f"rank {one.rank}", class_="named"), one.host or "-", one.pid or "-", f"{one.confidence:.0%}",
         why_of(incident, one)]
        for one in named[:MOST_LISTED]
    ]  # fmt: skip
    more = f"and {len(named) - MOST_LISTED} more" if len(named) > MOST_LISTED else ""
    head = [what, "host", "process", "confidence", "why"]
    return join((table(head, rows, [3]), el("p", more, class_="soft") if more else None))


def _links(incident: Incident, scene: Scene) -> Html | None:
    rows = [
        [f"rank {one.src}", f"rank {one.dst}", one.end or "not known", (one.scope or "not known").replace("_", " ")]
        for one in incident.links[:MOST_LISTED]
    ]
    named = table(["link from", "to", "end at fault", "scope"], rows) if rows else None
    return join((named, link_table(scene.links))) if named else None


def _evidence(evidence: Sequence[Evidence]) -> Html | None:
    if not evidence:
        return None
    return table(["what", "value", "where"], [[one.what, _value(one), one.where or "-"] for one in evidence])


def _value(one: Evidence) -> str:
    if isinstance(one.value, bool):
        return "yes" if one.value else "no"
    if isinstance(one.value, str):
        return f"{one.value} {one.unit}" if one.unit else one.value
    if one.unit == "s":
        return duration(one.value)
    if one.unit in ("B", "bytes", "B/s"):
        return size(one.value) + ("/s" if one.unit == "B/s" else "")
    return f"{number(one.value)} {one.unit}" if one.unit else number(one.value)


def stacks(of: dict[int, list[Stack]], named: frozenset[int]) -> Html | None:
    """Stacks of ranks, those of the named ones open."""
    if not of:
        return None
    return join(
        el("details", el("summary", f"rank {rank}"), *map(_thread, threads), open=rank in named)
        for rank, threads in of.items()
    )


def _thread(stack: Stack) -> Html:
    name = f"{stack.thread}, holds the GIL" if stack.holds_gil else stack.thread
    return el("pre", "\n  ".join((name, *stack.frames)))
