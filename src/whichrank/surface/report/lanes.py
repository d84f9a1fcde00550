"""The operations of ranks around an incident, a line for each rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from whichrank.model.codes import UNNUMBERED
from whichrank.model.incident import Incident
from whichrank.model.kinds import is_message
from whichrank.model.picture import Ints
from whichrank.model.signature import op_name
from whichrank.surface.report.axis import WIDTH, Bar, Mark, Tick, chart, legend
from whichrank.surface.report.gather import Gathered
from whichrank.surface.report.html import Html, el, table
from whichrank.surface.report.scene import Scene, named_in
from whichrank.surface.report.spans import Spans
from whichrank.surface.report.units import counted, day, digits_of, ranges, ticks, unit_of, utc

COLOURS: Final = 7
"""Communicators with a colour of their own: the others share one."""
FINEST: Final = 0.25
"""Bars that are nearer to each other, in units of the drawing, are drawn as one."""
MOST_LISTED: Final = 16
"""Ranks up to which the table is open from the start."""


@dataclass(frozen=True)
class View:
    """Of which job, when, and whose operations are shown.

    Attributes:
        gathered: The job.
        scene: What surrounded the incident.
        incident: None where a job has none.
    """

    gathered: Gathered
    scene: Scene
    incident: Incident | None

    @property
    def onset_s(self) -> float | None:
        """On the analyzer's clock."""
        return self._at_s(self.incident.onset.timestamp() if self.incident and self.incident.onset else None)

    @property
    def ended_s(self) -> float | None:
        """On the analyzer's clock."""
        return self._at_s(self.incident.ended.timestamp() if self.incident and self.incident.ended else None)

    @property
    def named(self) -> frozenset[int]:
        """Ranks that the incident names."""
        return frozenset(named_in(self.incident)) if self.incident else frozenset()

    def _at_s(self, utc_s: float | None) -> float | None:
        offset_s = self.gathered.utc_offset_s
        return None if utc_s is None or offset_s is None else utc_s - offset_s

    def x(self, at_s: float) -> float:
        """Where a moment is in the drawing."""
        from_s, to_s = self.scene.view_s
        return min(max((at_s - from_s) / (to_s - from_s), 0.0), 1.0) * WIDTH

    def time(self, at_s: float, digits: int = 3) -> str:
        """A moment in UTC, else in seconds since the beginning of what is shown."""
        if self.gathered.utc_offset_s is None:
            return f"{at_s - self.scene.view_s[0]:.{max(digits, 3)}f} s"
        return utc(at_s + self.gathered.utc_offset_s, digits)


def lanes(view: View) -> Html | None:
    """The chart with its legend and its table; no chart where nothing has a time, None where no operation is known."""
    scene, gathered = view.scene, view.gathered
    if not len(scene.spans):
        return None
    if not gathered.has_times:
        why = "The recording does not say when operations began or ended."
        return el("div", el("p", why, class_="soft"), _table(view))
    row = {rank: at for at, rank in enumerate(scene.lanes.tolist())}
    colour, kinds = _colours(view)
    in_round = _in_round(scene)
    lasts = scene.spans["end_s"] > scene.view_s[1]
    never_ends = scene.spans["open"] & (gathered.end_s is None)
    drawn = {
        "wait": scene.spans[lasts & ~in_round],
        **{f"c{n}": scene.spans[~lasts & ~in_round & (colour[scene.spans["comm"]] == n)] for n in range(COLOURS + 1)},
        "round": scene.spans[in_round],
    }
    bars = [bar for class_, spans in drawn.items() for bar in _bars(view, spans, row, class_)]
    marks = [Mark(view.x(float(step["at_s"])), "iteration") for step in scene.steps]
    upper = [Tick(view.x(float(s["at_s"])), f"{int(s['iteration']):,}") for s in scene.steps]
    if len(upper) > 6:
        upper = upper[:: len(upper) // 6 + 1]
    if view.onset_s is not None and scene.view_s[0] <= view.onset_s <= scene.view_s[1]:
        marks.append(Mark(view.x(view.onset_s), "onset", f"onset {view.time(view.onset_s)}{_stage(view)}"))
    if view.ended_s is not None and scene.view_s[0] < view.ended_s < scene.view_s[1]:
        marks.append(Mark(view.x(view.ended_s), "over", "ended"))
    picture = chart(
        [f"rank {rank}" for rank in row],
        bars,
        about="Operations of each rank over time; the table below says the same",
        named=frozenset(row[rank] for rank in view.named if rank in row),
        marks=marks,
        ticks=_ticks(view),
        ticks_of="" if gathered.utc_offset_s is None else "UTC",
        upper=upper,
        upper_of="iteration",
        notes={row[rank]: text for rank, text in _now(view).items()},
    )
    keys = [(f"c{n}", text) for n, text in enumerate(kinds) if len(drawn[f"c{n}"])]
    if len(drawn["wait"]):
        keys.append(("wait", "goes on behind the right edge"))
    if in_round.any():
        keys.append(("round", "the operation of the verdict"))
    keys += [("onset", "onset")] * any(mark.class_ == "onset" for mark in marks)
    keys += [("iteration", "iteration begins")] * bool(upper)
    return el("div", *_words(view, bool(never_ends.any())), legend(*keys), picture, _table(view))


def _colours(view: View) -> tuple[Ints, list[str]]:
    """A colour for each communicator, alike for those that are named alike, and what each colour stands for.

    The names with most operations have a colour of their own.
    """
    names = view.gathered.comms
    count: Counter[str] = Counter()
    for comm, operations in enumerate(np.bincount(view.scene.spans["comm"], minlength=len(names)).tolist()):
        if operations:
            count[names[comm]] += operations
    ordered = [name for name, _ in count.most_common()]
    number = {name: min(at, COLOURS) for at, name in enumerate(ordered)}
    others = f"{len(ordered) - COLOURS} other communicators"
    return np.array([number.get(name, COLOURS) for name in names], np.int64), [*ordered[:COLOURS], others]


def _in_round(scene: Scene) -> np.ndarray:
    """Which operations are those in which the incident shows."""
    if scene.round is None:
        return np.zeros(len(scene.spans), np.bool_)
    comm, counter, of_messages = scene.round
    same = (scene.spans["comm"] == comm) & (scene.spans["counter"] == counter)
    return np.asarray(same & (is_message(scene.spans["kind"]) == of_messages))


def _bars(view: View, spans: Spans, row: dict[int, int], class_: str) -> list[Bar]:
    """Bars of these operations; those of a rank that touch each other are one."""
    found: list[Bar] = []
    spans = spans[spans["start_s"] <= view.scene.view_s[1]]
    for span in spans[np.lexsort((spans["start_s"], spans["rank"]))]:
        bar = Bar(row[int(span["rank"])], view.x(float(span["start_s"])), view.x(float(span["end_s"])), class_)
        if found and found[-1].row == bar.row and bar.begin < found[-1].end + FINEST and class_ != "round":
            bar = Bar(bar.row, found[-1].begin, max(bar.end, found.pop().end), class_)
        found.append(bar)
    return found


def _ticks(view: View) -> list[Tick]:
    zero_s = view.gathered.utc_offset_s if view.gathered.utc_offset_s is not None else -view.scene.view_s[0]
    at = ticks(view.scene.view_s[0] + zero_s, view.scene.view_s[1] + zero_s)
    digits = digits_of(at[1] - at[0]) if len(at) > 1 else 3
    return [Tick(view.x(one - zero_s), view.time(one - zero_s, digits)) for one in at]


def _stage(view: View) -> str:
    stage = view.incident.stage if view.incident else None
    return f", iteration {stage.iteration:,}" if stage and stage.iteration is not None else ""


def _words(view: View, never_ends: bool) -> list[Html]:
    """What is shown, and what is not."""
    scene, offset_s = view.scene, view.gathered.utc_offset_s
    when = f"{view.time(scene.view_s[0])} to {view.time(scene.view_s[1])}"
    when += f" UTC on {day(scene.view_s[0] + offset_s)}" if offset_s is not None else ""
    said = [f"From {when}. A bar is an operation; between two bars a rank does its own work."]
    if len(scene.lanes) < view.gathered.world_size:
        said.append(f"{len(scene.lanes)} of {counted(view.gathered.world_size)} are shown.")
    if never_ends:
        said.append("What goes on at the right has no known end: these recordings do not say when they were made.")
    elif view.ended_s is not None and view.ended_s > scene.view_s[1]:
        said.append(f"The incident went on until {view.time(view.ended_s)}.")
    elif view.gathered.end_s is not None and view.incident and view.incident.status == "open":
        said.append(f"The job was watched until {view.time(view.gathered.end_s)}.")
    return [el("p", " ".join(said), class_="soft")]


def _then(view: View) -> dict[int, np.void]:
    """Of each rank the operation in which it is at the right edge, or comes to be later.

    That is the one in which it waits; of others that of the verdict, else the first. Of what is slow it is the first:
    ranks wait in another one when it is reported.
    """
    spans = view.scene.spans
    is_slow = view.incident is not None and view.incident.kind == "slow"
    waits_now = () if is_slow else view.scene.waits
    what = {rank: one.what for one in waits_now for rank in one.ranks.tolist()}
    there = np.flatnonzero(spans["end_s"] > view.scene.view_s[1])
    waits = [what.get(int(span["rank"])) in _texts(view, span) for span in spans[there]]
    order = np.lexsort((spans["start_s"][there], ~_in_round(view.scene)[there], np.logical_not(waits)))[::-1]
    return {int(spans[at]["rank"]): spans[at] for at in there[order].tolist()}


def _texts(view: View, span: np.void) -> tuple[str, str]:
    """How an operation is called, with its number and without."""
    comm = view.gathered.comms[int(span["comm"])]
    return _op_text(view, span), f"{op_name(int(span['kind']), UNNUMBERED)} on {comm}"


def _now(view: View) -> dict[int, str]:
    """What is said on the right of each line."""
    if view.incident is None or view.incident.kind == "slow":
        return {}
    then = _then(view)
    found = dict.fromkeys(view.scene.lanes.tolist(), "in no operation")
    for rank, span in then.items():
        is_later = span["start_s"] > view.scene.view_s[1]
        since = f" from {view.time(float(span['start_s']))} on" if is_later else ""
        found[rank] = f"in {_op_text(view, span)}{since}"
    return found


def _op_text(view: View, span: np.void) -> str:
    return f"{op_name(int(span['kind']), int(span['counter']))} on {view.gathered.comms[int(span['comm'])]}"


def _table(view: View) -> Html:
    """What each rank did last, and where it is."""
    scene = view.scene
    then = _then(view)
    done = scene.spans[scene.spans["end_s"] <= scene.view_s[1]]
    done = done[np.argsort(done["end_s"], kind="stable")]
    latest = {int(span["rank"]): span for span in done}
    unit = unit_of(span["end_s"] - span["start_s"] for span in latest.values())
    rows = []
    for rank in scene.lanes.tolist():
        last, now = latest.get(rank), then.get(rank)
        rows.append({
            "rank": el("b", f"rank {rank}", class_="named") if rank in view.named else f"rank {rank}",
            "host": view.gathered.hosts.get(rank, "-"),
            "latest operation that ended": _op_text(view, last) if last is not None else "none here",
            "at": view.time(float(last["end_s"])) if last is not None else "-",
            f"took, {unit.name}": unit.text(float(last["end_s"] - last["start_s"])) if last is not None else "-",
            "then in": _op_text(view, now) if now is not None else "in no operation",
            "since": view.time(float(now["start_s"])) if now is not None else "-",
        })  # fmt: skip
    times = {"at", f"took, {unit.name}", "since"}
    head = [name for name in rows[0] if view.gathered.has_times or name not in times] if rows else []
    summary = f"{'The same in words: ' if view.gathered.has_times else ''}{counted(len(rows))} ({ranges(scene.lanes)})"
    numbers = [at for at, name in enumerate(head) if name.startswith("took")]
    cells = [[row[name] for name in head] for row in rows]
    return el("details", el("summary", summary), table(head, cells, numbers), open=len(rows) <= MOST_LISTED)
