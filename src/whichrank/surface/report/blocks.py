"""A usual iteration of something slow, a line for each rank: as it was, and as it would be without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from whichrank.model.incident import Incident
from whichrank.model.iterations import Bools, Ints
from whichrank.stage.blocks import Blocks, What
from whichrank.stage.gains import Gain
from whichrank.surface.report.axis import WIDTH, Bar, Tick, chart, legend
from whichrank.surface.report.html import Html, el, table
from whichrank.surface.report.units import Unit, counted, ranges, ticks, unit_of
from whichrank.verdict.words.amounts import duration

FINEST: Final = 0.25
"""Bars that are nearer to each other, in units of the drawing, are drawn as one."""
_CLASSES: Final = {
    What.FORWARD: "c0", What.BACKWARD: "c1", What.OPTIMIZER: "c2", What.OWN: "own", What.TRANSFER: "transfer",
}  # fmt: skip
_SAID: Final = {
    What.FORWARD: "forward", What.BACKWARD: "backward", What.OPTIMIZER: "optimizer", What.OWN: "by itself",
    What.TRANSFER: "in a transfer", What.WAITING: "waiting",
}  # fmt: skip
_PHASES: Final = {"forward": What.FORWARD, "backward": What.BACKWARD, "optimizer": What.OPTIMIZER}


def iteration_in_blocks(
    before_and_after: tuple[Blocks, Blocks] | None, incident: Incident, world_size: int
) -> Html | None:
    """Two charts on one scale, and the same in numbers; None where the iteration is not known.

    Args:
        before_and_after: As it was, and as it would be.
        incident: What is slow.
        world_size: Ranks of the job.
    """
    if before_and_after is None:
        return None
    before, after = before_and_after
    shown = np.unique(before.rank)
    unit, longest_s = unit_of([before.lasts_s]), max(before.lasts_s, after.lasts_s)
    named = frozenset(one.rank for one in (*incident.culprits, *incident.candidates))
    keys = [(class_, _SAID[what]) for what, class_ in _CLASSES.items() if (before.what == what).any()]
    is_culprit = _is_culprit(before, incident)
    keys += [("culprit", "what is slow")] * bool(is_culprit.any())
    keys.append(("path", "critical path: what is longer there makes the iteration longer"))
    said = "A usual iteration since then. Where nothing is drawn a rank waits for others: a bubble."
    if (before.microbatch > 0).any():
        said += " Microbatches are drawn pale and full by turns."
    if len(shown) < world_size:
        said += f" {len(shown)} of {counted(world_size)} are shown."
    nothing = np.zeros(len(after.rank), np.bool_)
    charts = (("As it was", before, is_culprit), (_if(incident, after.mended), after, nothing))
    pictures = []
    for title, blocks, slow in charts:
        picture = _chart(blocks, slow, shown, named, longest_s, unit, title)
        pictures.append(el("div", el("h4", f"{title}: {duration(blocks.iteration_s)}"), picture))
    return el("div", el("p", said, class_="soft"), legend(*keys), *pictures, _numbers(before, shown, named, unit))


def _if(incident: Incident, mended: Sequence[int]) -> str:
    """What the second chart assumes: of several ranks that are slow at once all are mended."""
    if not mended:
        return "If the slow links were as quick as usual" if len(incident.links) > 1 else "If the link were not slow"
    return f"If rank {mended[0]} were not slow" if len(mended) == 1 else "If no rank were slow"


def _is_culprit(blocks: Blocks, incident: Incident) -> Bools:
    """Blocks in which a named rank is slow: those of the phase and the microbatch of the verdict."""
    found: Bools = np.isin(blocks.rank, [one.rank for one in incident.culprits]) & (blocks.what < What.TRANSFER)
    stage = incident.stage
    if stage and stage.phase in _PHASES and (blocks.what[found] == _PHASES[stage.phase]).any():
        found &= blocks.what == _PHASES[stage.phase]
        if stage.microbatch is not None:
            found &= blocks.microbatch == stage.microbatch
    return found


def _chart(
    blocks: Blocks, slow: Bools, shown: Ints, named: frozenset[int], longest_s: float, unit: Unit, about: str
) -> Html:
    row = {rank: at for at, rank in enumerate(shown.tolist())}
    scale, bars = WIDTH / longest_s, list[Bar]()
    classes = np.array([_CLASSES.get(What(what), "") for what in range(len(What))])[blocks.what]
    pale = np.where((blocks.microbatch >= 0) & (blocks.microbatch % 2 == 0), " pale", "")
    drawn = np.char.add(np.where(slow, "culprit", classes), pale)
    for class_ in np.unique(drawn[blocks.what != What.WAITING]).tolist():
        bars += _bars(blocks, row, scale, drawn == class_, class_)
    bars += _bars(blocks, row, scale, blocks.is_critical, "path")
    end = WIDTH * blocks.lasts_s / longest_s
    return chart(
        [f"rank {rank}" for rank in shown.tolist()],
        bars,
        about=f"{about}; the table below says the same of it as it was",
        named=frozenset(row[rank] for rank in named if rank in row),
        ticks=[Tick(one * scale, unit.text(one)) for one in ticks(0.0, longest_s) if one * scale <= end + 1],
        ticks_of=unit.name,
    )


def _bars(blocks: Blocks, row: dict[int, int], scale: float, which: Bools, class_: str) -> list[Bar]:
    """Bars of these blocks; those of a rank that touch each other, and are of one microbatch, are one."""
    found, batch = list[Bar](), -1
    for at in np.flatnonzero(which).tolist():
        here = int(blocks.microbatch[at])
        bar = Bar(row[int(blocks.rank[at])], blocks.since_s[at] * scale, blocks.until_s[at] * scale, class_)
        if found and found[-1].row == bar.row and bar.begin < found[-1].end + FINEST and here == batch:
            bar = Bar(bar.row, found[-1].begin, max(bar.end, found.pop().end), class_)
        found.append(bar)
        batch = here
    return found


def _numbers(blocks: Blocks, shown: Ints, named: frozenset[int], unit: Unit) -> Html:
    """Of each rank how long it was in what."""
    kinds = [what for what in What if (blocks.what == what).any()]
    lasted_s = blocks.until_s - blocks.since_s
    rows: list[Sequence[object]] = []
    for rank in shown.tolist():
        mine = blocks.rank == rank
        sums = [float(lasted_s[mine & (blocks.what == what)].sum()) for what in kinds]
        on_path = float(lasted_s[mine & blocks.is_critical].sum())
        name = el("b", f"rank {rank}", class_="named") if rank in named else f"rank {rank}"
        rows.append([name, *map(unit.text, sums), unit.text(on_path)])
    head = ["rank", *(f"{_SAID[what]}, {unit.name}" for what in kinds), f"on the critical path, {unit.name}"]
    return el("details", el("summary", "The same in numbers"), table(head, rows, list(range(1, len(head)))))


def gain_table(gains: Sequence[Gain], named: frozenset[int]) -> Html | None:
    """How much shorter iterations would be with one thing or another fixed; None where nothing buys anything."""
    if not gains:
        return None
    unit = unit_of([one.saved_s for one in gains])
    rows = [
        [el("b", one.what, class_="named") if set(one.ranks) <= named else one.what, ranges(np.array(one.ranks)),
         unit.text(one.saved_s), f"{one.saved_s / one.iteration_s:.0%}"]
        for one in gains
    ]  # fmt: skip
    head = ["fixed", "ranks", f"saves of an iteration, {unit.name}", "share"]
    said = (
        "Fixed is what takes no longer than the middle of all that do the same work, a pipeline stage no longer than"
        " the middle of all stages. What bubbles absorb, or others hold up as well, saves nothing."
    )
    return el("div", el("p", said, class_="soft"), table(head, rows, [2, 3]))
