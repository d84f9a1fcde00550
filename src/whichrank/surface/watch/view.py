"""Draws a frame: into a screen of a given size, or in full.

A screen is budgeted by lines, since what does not fit is cut by the terminal at the bottom, where nobody knows what
was there. So every part says how many rows it leaves out, and the rows that stay are the interesting ones.
"""

from __future__ import annotations

import textwrap
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from whichrank.model.changes import LevelChange
from whichrank.model.incident import Incident
from whichrank.model.links import LinkRate, rate_text
from whichrank.surface.mitigated import now_line
from whichrank.surface.watch.frame import Frame, JobNow
from whichrank.surface.watch.tables import communicators_table, ranks_table
from whichrank.surface.watch.words import printable, short_duration
from whichrank.verdict.words.amounts import duration
from whichrank.verdict.words.details import next_steps
from whichrank.verdict.words.text import headline, who

SIDE_BY_SIDE: Final = 150
"""From this width on, communicators stand beside the ranks."""
RANKS_SHARE: Final = 0.56
UNLIMITED: Final = 1 << 20
SMALLEST_JOB: Final = 8
MOST_INCIDENTS: Final = 4
LEGEND: Final = {
    "blamed": "an alert names it",
    "suspected": "a notice names it, or it is a candidate",
    "awaited": "others wait for it",
}

_INCIDENT_STYLE: Final = {"alert": "bold red", "notice": "yellow"}
_ELSEWHERE: Final = "incidents are written where this job is analyzed"
_QUIET: Final = "No job runs on this node. Start one with  whichrank run -- COMMAND"


def page(frame: Frame, width: int) -> RenderableType:
    """Everything, as long as it gets."""
    return Group(*_jobs(frame, width, UNLIMITED))


def screen(frame: Frame, width: int, height: int) -> RenderableType:
    """As much as a terminal of this size holds, with a line above and one below."""
    body = _jobs(frame, width, max(1, height - 2))
    marks = {rank.mark for job in frame.jobs for rank in job.ranks}
    legend = "   ".join(f"{mark}: {words}" for mark, words in LEGEND.items() if mark in marks)
    clock = frame.at.astimezone().strftime("%H:%M:%S")
    top = _line(Text("whichrank watch", style="bold"), Text(f"{printable(frame.host)}  {clock}", style="dim"))
    bottom = _line(Text("q quits", style="dim"), Text(legend if len(legend) < width - 10 else "", style="dim"))
    return Group(top, *body, *[Text("")] * (height - 2 - _height(body)), bottom)


def _jobs(frame: Frame, width: int, lines: int) -> list[RenderableType]:
    """Running jobs in full, as many as fit; the others, and those that have ended meanwhile, in two lines."""
    if not frame.jobs:
        return [Text(_QUIET)]
    in_full = [job for job in frame.jobs if job.state == "running"] or list(frame.jobs[:1])
    in_full = in_full[: max(1, lines // SMALLEST_JOB)]
    others = [job for job in frame.jobs if job not in in_full]
    shown = others[: lines // 6]
    brief = [part for job in shown for part in _brief(job, frame.at)]
    if len(others) > len(shown):
        brief.append(Text(f"and {len(others) - len(shown)} more jobs: whichrank watch JOB", style="dim"))
    left = lines - len(brief)
    parts: list[RenderableType] = []
    for place, job in enumerate(in_full):
        part = _job(job, frame.at, width, left // (len(in_full) - place))
        left -= _height(part)
        parts += part
    return [*parts, *brief]


def _brief(job: JobNow, at: datetime) -> list[RenderableType]:
    return [_job_line(job, at), *(_incident_line(incident, at) for incident in job.incidents[:1])]


def _job(job: JobNow, at: datetime, width: int, lines: int) -> list[RenderableType]:
    head = [_job_line(job, at), *_incidents(job, at, width, lines)]
    head += [Text(f"! {fault}", style="yellow", no_wrap=True, overflow="ellipsis") for fault in job.faults[:2]]
    if job.changes:
        head.append(_change(job.changes[-1]))
    if job.mitigation is not None:
        head.append(Text(printable(now_line(job.mitigation)), no_wrap=True, overflow="ellipsis"))
    if job.links:
        head.append(_links(job.links))
    if len(job.faults) > 2:
        head.append(Text(f"! and {len(job.faults) - 2} more that could not be read", style="yellow"))
    left = lines - len(head) - 1
    if not job.ranks or left < 3:
        return head
    if width >= SIDE_BY_SIDE and job.communicators:
        ranks_width = int(width * RANKS_SHARE)
        ranks = _ranks(job, ranks_width, left)
        comms = _comms(job, width - ranks_width - 2, left)
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=ranks_width)
        table.add_column(width=width - ranks_width - 2)
        table.add_row(Group(*ranks), Group(*comms))
        return [*head, Text(""), _Sized(table, max(_height(ranks), _height(comms)))]
    wanted = len(job.communicators) + 2 if job.communicators else 0
    for_comms = min(wanted, max(left // 3, left - len(job.ranks) - 2))
    if for_comms < min(wanted, 4):  # a blank line, the heading, one row, and how many more there are
        for_comms = 0
    ranks = _ranks(job, width, left - for_comms)
    comms = _comms(job, width, for_comms - 1) if for_comms else []
    return [*head, Text(""), *ranks, *([Text(""), *comms] if comms else [])]


def _change(latest: LevelChange) -> Text:
    """What iterations take, and since when."""
    since = latest.at.astimezone().strftime("%H:%M:%S")
    now, before = duration(latest.after_s), duration(latest.before_s)
    return Text(
        f"iterations take {now}, {before} until iteration {latest.iteration:,} at {since}",
        style="dim",
        no_wrap=True,
        overflow="ellipsis",
    )


def _links(links: tuple[LinkRate, ...]) -> Text:
    """The slowest way between nodes, beside the others whose rates are of the same kind."""
    slowest = links[0]
    alike = [link for link in links if link.paced == slowest.paced]
    middle = alike[len(alike) // 2]
    usual = f", {rate_text(slowest.best)} at best" if slowest.best else ""
    which = f"slowest of {len(links)} links between nodes: rank {slowest.src} to {slowest.dst}"
    return Text(
        f"{which}, {rate_text(slowest.rate)}{usual}" + (f"; median {rate_text(middle.rate)}" if len(alike) > 1 else ""),
        style="dim",
        no_wrap=True,
        overflow="ellipsis",
    )


def _ranks(job: JobNow, width: int, lines: int) -> list[RenderableType]:
    rows, cut = _cut(len(job.ranks), lines - 1)
    named = sum(bool(rank.mark) for rank in job.ranks[rows:])
    note = f"and {cut} more ranks" + (f", {named} of them blamed, suspected or awaited" if named else "")
    return [_Sized(ranks_table(job.ranks[:rows], width), rows + 1), *([Text(note, style="dim")] if cut else [])]


def _comms(job: JobNow, width: int, lines: int) -> list[RenderableType]:
    rows, cut = _cut(len(job.communicators), lines - 1)
    rest = job.communicators[rows:]
    uneven = sum(comm.issued_min != comm.issued_max for comm in rest)
    note = f"and {cut} more communicators" + (f", {uneven} of them uneven" if uneven else ", all of them even")
    table = communicators_table(job.communicators[:rows], width)
    return [_Sized(table, rows + 1), *([Text(note, style="dim")] if cut else [])]


def _cut(count: int, lines: int) -> tuple[int, int]:
    """How many rows to show in so many lines, and how many that leaves out (which takes a line to say)."""
    return (count, 0) if count <= lines else (max(1, lines - 1), count - max(1, lines - 1))


def _job_line(job: JobNow, at: datetime) -> RenderableType:
    facts = [f"{len(job.ranks)} of {job.world_size} ranks here" if job.ranks else "no rank yet"]
    if job.started is not None and job.state == "running":
        facts.append(f"up {short_duration((at - job.started).total_seconds())}")
    if job.ranks and job.ops_per_s is not None and job.state == "running":
        facts.append(f"{job.ops_per_s:,.0f} ops/s")
    for name, states in job.sensors.items():
        facts += [f"{name} {state} on {count}" for state, count in states.items() if state != "on"]
    alerts = sum(i.severity == "alert" and i.status != "recovered" for i in job.incidents)
    if alerts:
        facts.append(f"{alerts} alert{'s' if alerts > 1 else ''}")
    right = Text("  ".join(facts))
    if alerts:
        right.stylize("bold red", len(right) - len(facts[-1]))
    title = Text.assemble((job.job, "bold"), ("  ended" if job.state == "ended" else "", "yellow"))
    title.no_wrap, title.overflow = True, "ellipsis"
    return _line(title, right)


def _incidents(job: JobNow, at: datetime, width: int, lines: int) -> list[RenderableType]:
    if not job.incidents:
        return [Text("no incident", style="green") if job.recorded else Text(_ELSEWHERE, style="dim")]
    shown = job.incidents[: max(1, min(MOST_INCIDENTS, lines // 6))] if lines < UNLIMITED else job.incidents
    parts: list[RenderableType] = []
    for place, incident in enumerate(shown):
        parts.append(_incident_line(incident, at))
        if place == 0 and incident.status != "recovered" and lines >= 2 * SMALLEST_JOB:
            parts += _details(incident, width)
    if len(job.incidents) > len(shown):
        parts.append(Text(f"and {len(job.incidents) - len(shown)} more: whichrank why", style="dim"))
    return parts


def _incident_line(incident: Incident, at: datetime) -> RenderableType:
    title = Text(headline(incident), no_wrap=True, overflow="ellipsis")
    title.style = "dim" if incident.status == "recovered" else _INCIDENT_STYLE[incident.severity]
    return _line(title, Text(_when(incident, at), style="dim"))


def _details(incident: Incident, width: int) -> list[RenderableType]:
    """Who, and why (or the candidates), in two lines at most, and what to do next."""
    said = who(incident)
    if len(incident.culprits) != 1:
        said = "; ".join(f"rank {one.rank}: {one.why}" for one in (*incident.culprits, *incident.candidates))
    lines = _wrapped(said[:1].upper() + said[1:], width, 2)
    if steps := next_steps(incident):
        lines += _wrapped(f"next: {steps[0]}", width, 1)
    return [Text(f"  {line}", no_wrap=True) for line in lines]


def _wrapped(text: str, width: int, lines: int) -> list[str]:
    return textwrap.wrap(printable(text), max(20, width - 2), max_lines=lines, placeholder=" …")


def _when(incident: Incident, at: datetime) -> str:
    if incident.ended is not None:
        return f"{short_duration((at - incident.ended).total_seconds())} ago"
    return f"for {short_duration((at - (incident.onset or incident.detected)).total_seconds())}"


def _line(left: Text, right: Text) -> RenderableType:
    """One line with text on both sides."""
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return _Sized(grid, 1)


class _Sized:
    """A part and how many lines it takes."""

    def __init__(self, part: RenderableType, lines: int) -> None:
        self.part = part
        self.lines = lines

    def __rich__(self) -> RenderableType:
        return self.part


def _height(parts: list[RenderableType]) -> int:
    return sum(part.lines if isinstance(part, _Sized) else 1 for part in parts)
