"""The page of a report: an index where there are several incidents, a part for each, and what is known of the job.

Of a job with several attempts it shows the last one in full, and of the earlier ones the verdicts with their evidence.

Everything is in the HTML itself. There is no script, so the page shows the same in a mail program, on paper and on a
phone, and nothing that a job calls itself can run.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from whichrank import __version__
from whichrank.model.incident import Incident
from whichrank.server.mitigations_file import Mitigated
from whichrank.surface.mitigated import said
from whichrank.surface.report.attempts import earlier_attempt, index_of_attempts, sentence
from whichrank.surface.report.gather import Gathered, Operations
from whichrank.surface.report.html import Html, el, join, section, table
from whichrank.surface.report.iterations import change_table, heat_maps, link_table, times
from whichrank.surface.report.lanes import View, lanes
from whichrank.surface.report.units import counted, moment, unit_of
from whichrank.surface.report.verdict import article
from whichrank.verdict.words.text import headline

MOST_NOTES: Final = 512
MOST_MITIGATIONS: Final = 512
"""The latest ones."""
_STATES: Final = ("damaged", "empty", "ignored", "read")


def page_of(gathered: Gathered, notes: Iterable[Mapping[str, Any]] = ()) -> str:
    """The HTML of a report.

    Args:
        gathered: What it shows.
        notes: What became of each file that it was made of.
    """
    notes = list(notes)
    states = {note["state"] for note in notes}
    is_known = bool(gathered.incidents) or "damaged" not in states or "read" in states
    body = (_head(gathered, is_known=is_known), el("main", *_main(gathered, notes, is_known=is_known)), _foot())
    parts = {
        "@@TITLE@@": html.escape(_title(gathered, is_known=is_known)), "@@STYLE@@": _file("page.css"),
        "@@BODY@@": join(body),
    }  # fmt: skip
    return re.sub("|".join(parts), lambda found: parts[found.group()], _file("page.html"))


def _file(name: str) -> str:
    return files("whichrank.surface.report").joinpath(name).read_text(encoding="utf-8")


def _title(gathered: Gathered, *, is_known: bool) -> str:
    if len(gathered.incidents) == 1:
        return f"{headline(gathered.incidents[0])} - {gathered.job}"
    if gathered.left_open or not is_known:
        return f"not {'decided' if is_known else 'readable'} - {gathered.job}"
    return f"{counted(len(gathered.incidents), 'incident')} - {gathered.job}"


def _head(gathered: Gathered, *, is_known: bool) -> Html:
    hosts = len({*gathered.hosts.values(), *gathered.more_hosts})
    about = [
        gathered.attempt,
        counted(gathered.world_size) if gathered.world_size else None,
        counted(hosts, "host") if hosts else None,
        gathered.layout.known,
        counted(len(gathered.incidents), "incident") if gathered.incidents else None,
        None if gathered.incidents or gathered.left_open or not is_known else "no incident",
        f"whichrank {__version__}",
    ]
    said = " · ".join(one for one in about if one)
    return el("header", el("h1", gathered.job or "job"), el("p", said, class_="soft"))


def _foot() -> Html:
    return el("footer", "Made by whichrank. This file holds all that it shows, and fetches nothing.")


def _main(gathered: Gathered, notes: Sequence[Mapping[str, Any]], *, is_known: bool) -> Iterable[Html | None]:
    if gathered.missing:
        yield el("p", *_with_code(gathered.missing), class_="missing")
    if not gathered.is_whole:
        yield el("p", "The recording ends within an entry: what came before is shown.", class_="missing")
    for conflict in gathered.layout.conflicts:
        yield el("p", conflict, class_="missing")
    if gathered.left_open:
        said = f"This recording does not show which rank waits for which: {gathered.left_open}."
        yield el("p", said, class_="missing")
    elif not is_known:
        yield el("p", "What was read is damaged, so whether there was an incident is not known.", class_="missing")
    elif not gathered.incidents:
        yield el("p", "No incident.", class_="nothing")
    anchors = [f"incident-{number}" for number in range(1, len(gathered.incidents) + 1)]
    if gathered.earlier:
        yield index_of_attempts(gathered)
    elif len(anchors) > 1:
        yield _index(gathered.incidents, anchors)
    for incident, scene, anchor in zip(gathered.incidents, gathered.scenes, anchors, strict=True):
        yield article(gathered, incident, scene, anchor)
    yield from _job(gathered)
    for text in gathered.remarks:
        yield el("p", sentence(text), class_="soft")
    for place, attempt in enumerate(gathered.earlier, 1):
        yield earlier_attempt(gathered, attempt, place)
    if notes:
        yield section("What was read", _notes(notes))


def _with_code(line: str) -> list[object]:
    return [el("code", part) if at % 2 else part for at, part in enumerate(line.split("`"))]


def _index(incidents: Sequence[Incident], anchors: Sequence[str]) -> Html:
    """The incidents in the order in which they were reported, each with its place in the page."""
    lines = (
        el("li", el("a", headline(one), href=f"#{anchor}", class_=one.severity),
           el("span", f" {moment(one.onset)}" if one.onset is not None else "", class_="soft"))
        for one, anchor in zip(incidents, anchors, strict=True)
    )  # fmt: skip
    return el("nav", el("h2", f"{len(incidents)} incidents"), el("ol", *lines))


def _job(gathered: Gathered) -> Iterable[Html]:
    """What belongs to no incident."""
    if gathered.job_scene:
        view = View(gathered, gathered.job_scene, None)
        for title, body in (
            ("Where an iteration goes", times(gathered.job_scene.times, frozenset())),
            ("The latest operations", lanes(view)),
            ("Iterations", heat_maps(gathered.job_scene.heat, frozenset(), gathered.utc_offset_s)),
        ):
            if body:
                yield section(title, body)
    if gathered.operations and gathered.has_times:
        yield section("Operations that took longest, of the whole job", _operations(gathered.operations))
    if changes := change_table(gathered.changes):
        yield section("How long iterations took", changes)
    if gathered.mitigations:
        yield section("What was done about it", _mitigations(gathered.mitigations))
    if links := link_table(gathered.links):
        yield section("Transfers between nodes", links)


def _mitigations(lines: Sequence[Mitigated]) -> Html:
    rows = [[moment(line.at), line.step or "-", line.what, said(line)] for line in lines[-MOST_MITIGATIONS:]]
    return table(["when", "step", "state", "what"], rows, [1])


def _operations(operations: Sequence[Operations]) -> Html:
    one = unit_of([of.longest_s for of in operations] + [of.median_s for of in operations])
    whole = unit_of([of.total_s for of in operations])
    rows = [
        [of.kind, of.comm, f"{of.count:,}", one.text(of.median_s), one.text(of.longest_s), f"rank {of.longest_rank}",
         whole.text(of.total_s), whole.text(of.waited_s) if of.waited_s else "-"]
        for of in operations
    ]  # fmt: skip
    head = [
        "operation", "on", "how many", f"median, {one.name}", f"longest, {one.name}", "longest on",
        f"all together, {whole.name}", f"of that blocked, {whole.name}",
    ]  # fmt: skip
    return table(head, rows, [2, 3, 4, 6, 7])


def _notes(notes: Sequence[Mapping[str, Any]]) -> Html:
    ordered = sorted(notes, key=lambda note: _STATES.index(note["state"]))
    rows = [
        [note["path"], note.get("format") or "-", note.get("rank", "-"), note["state"], note.get("what") or ""]
        for note in ordered[:MOST_NOTES]
    ]
    more = f", {MOST_NOTES} of them are listed" if len(notes) > MOST_NOTES else ""
    is_bad = any(note["state"] in ("damaged", "empty") for note in notes)
    body = table(["file", "format", "rank", "state", "why"], rows, [2])
    return el("details", el("summary", counted(len(notes), "file") + more), body, open=is_bad)
