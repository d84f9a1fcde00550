"""Iterations of ranks: how long each took, where they went, and what went over the links between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from whichrank.model.changes import LevelChange
from whichrank.model.incident import Spent
from whichrank.model.links import LinkRate
from whichrank.model.picture import Floats, Ints
from whichrank.surface.report.axis import WIDTH, Bar, Tick, chart, legend
from whichrank.surface.report.html import Html, el, table
from whichrank.surface.report.scene import MOST_LANES, Heat
from whichrank.surface.report.units import Unit, counted, day, moment, unit_of, utc

LEVELS: Final = 8
"""Shades of a cell."""
PARTS: Final = (("own", "by itself"), ("transfer", "in transfers"), ("waiting", "waiting for others"))
"""Of an iteration."""
LINKS: Final = 12
GBIT: Final = 125e6
"""Bytes."""


def heat_maps(heat: Heat, named: frozenset[int], utc_offset_s: float | None) -> Html | None:
    """Two charts with a row for each rank and a column for each iteration; None where none are known.

    Args:
        heat: Iterations.
        named: Ranks that stand out.
        utc_offset_s: To UTC from the times in it, None if that is not known.
    """
    if not len(heat.iterations):
        return None
    rows = _shown(heat, named)
    unit = unit_of([float(np.median(heat.own_s + heat.blocked_s))])
    first, last = int(heat.iterations[0]), int(heat.iterations[-1])
    said = f"Iterations {first:,} to {last:,} across, ranks down; a stronger colour is a longer time."
    if utc_offset_s is not None:
        begun_s, ended_s = float(heat.ends_s[0]) + utc_offset_s, float(heat.ends_s[-1]) + utc_offset_s
        said += f" They ended from {utc(begun_s)} to {utc(ended_s)} UTC on {day(ended_s)}."
    if len(rows) < len(heat.ranks):
        said += f" {len(rows)} of {counted(len(heat.ranks))} are shown."
    return el(
        "div",
        el("p", said, class_="soft"),
        _map("By itself: computing, loading data", heat, heat.own_s, rows, named, unit, "own", utc_offset_s),
        _map("Blocked in operations: transfers and waiting for others", heat, heat.blocked_s, rows, named, unit,
             "transfer", utc_offset_s),
    )  # fmt: skip


def _shown(heat: Heat, named: frozenset[int]) -> Ints:
    """Rows: of a large job those that are named, and some of the others."""
    every = np.arange(len(heat.ranks))
    if len(every) <= MOST_LANES:
        return every
    mine = np.flatnonzero(np.isin(heat.ranks, list(named)))[:MOST_LANES]
    others = np.setdiff1d(every, mine)
    at = np.unique(np.linspace(0, len(others) - 1, MOST_LANES - len(mine)).astype(np.int64))
    return np.sort(np.concatenate((mine, others[at])))


def _map(
    title: str, heat: Heat, values: Floats, rows: Ints, named: frozenset[int], unit: Unit, class_: str,
    utc_offset_s: float | None,
) -> Html:  # fmt: skip
    low, high = float(np.quantile(values, 0.05)), float(np.quantile(values, 0.99))
    share = (values - low) / max(high - low, 0.02 * high, 1e-9)
    level = (np.clip(share, 0, 1) * (LEVELS - 1)).round().astype(int)
    columns = len(heat.iterations)
    width = WIDTH / columns
    gap = 0.06 * width if columns <= 128 else 0.0
    bars = [
        Bar(row, n * width, (n + 1) * width - gap, f"{class_} l{level[rank, n]}")
        for row, rank in enumerate(rows.tolist())
        for n in range(columns)
    ]
    labelled = range(0, columns, max(1, columns // 6))
    ended = [] if utc_offset_s is None else [utc(float(heat.ends_s[n]) + utc_offset_s, 1) for n in labelled]
    picture = chart(
        [f"rank {int(heat.ranks[rank])}" for rank in rows],
        bars,
        about=title,
        named=frozenset(row for row, rank in enumerate(rows.tolist()) if int(heat.ranks[rank]) in named),
        ticks=[Tick((n + 0.5) * width, text) for n, text in zip(labelled, ended, strict=False)],
        ticks_of="UTC",
        upper=[Tick((n + 0.5) * width, f"{int(heat.iterations[n]):,}") for n in labelled],
        upper_of="iteration",
        notes={row: f"median {unit.full(float(np.median(values[rank])))}" for row, rank in enumerate(rows.tolist())},
    )
    darkest = f"{class_} l{LEVELS - 1}"
    shades = legend((f"{class_} l0", f"{unit.full(low)} or less"), (darkest, f"{unit.full(high)} or more"))
    return el("div", el("h4", title), shades, picture)


def times(spent: Sequence[Spent], named: frozenset[int]) -> Html | None:
    """Where an iteration goes for each rank: a bar and its numbers; None where that is not known."""
    if not spent:
        return None
    shown = list(spent)
    if len(shown) > MOST_LANES:
        mine = [one for one in shown if one.rank in named]
        others = [one for one in shown if one.rank not in named]
        shown = mine + others[:: len(others) // max(1, MOST_LANES - len(mine)) + 1]
    unit = unit_of([max(one.own_s + one.transfer_s + one.waiting_s for one in shown)])
    most = max(one.own_s + one.transfer_s + one.waiting_s for one in shown) or 1.0
    rows = []
    for one in shown:
        parts = (("own", one.own_s), ("transfer", one.transfer_s), ("waiting", one.waiting_s))
        pieces = (el("i", class_=name, style=f"width:{part / most:.2%}") for name, part in parts)
        bar = el("div", *pieces, class_="stack")
        name = el("b", f"rank {one.rank}", class_="named") if one.rank in named else f"rank {one.rank}"
        rows.append([name, bar, *(unit.text(part) for _, part in parts)])
    head = ["rank", "an iteration", *(f"{text}, {unit.name}" for _, text in PARTS)]
    more = f"{len(shown)} of {counted(len(spent))} are shown. " if len(shown) < len(spent) else ""
    return el("div", el("p", more, class_="soft") if more else None,
              legend(*PARTS),
              table(head, rows, [2, 3, 4]), class_="times")  # fmt: skip


def change_table(changes: Sequence[LevelChange]) -> Html | None:
    """From when on iterations took longer, or less long; None where they never did."""
    if not changes:
        return None
    unit = unit_of([min(min(one.before_s, one.after_s) for one in changes)])
    rows = [
        [moment(one.at), f"{one.iteration:,}", unit.text(one.before_s), unit.text(one.after_s),
         f"{one.after_s / one.before_s:.2f}"]
        for one in changes
    ]  # fmt: skip
    head = ["from", "iteration", f"before, {unit.name}", f"from then on, {unit.name}", "times as long"]
    return table(head, rows, [1, 2, 3, 4], "When iterations took longer, or less long, by a tenth or more")


def link_table(links: Sequence[LinkRate], caption: str = "The slowest transfers between nodes") -> Html | None:
    """The slowest links, and how much of their best rate is left; None where none is known."""
    if not links:
        return None
    in_gbit = all(one.rate >= GBIT for one in links[:LINKS])
    unit, per_bytes = ("Gbit/s", 1 / GBIT) if in_gbit else ("Mbit/s", 1e3 / GBIT)
    rows = [
        [f"rank {one.src}", f"rank {one.dst}", f"{one.rate * per_bytes:,.1f}",
         f"{one.rate / one.best:.0%}" if one.best else "not known"]
        for one in links[:LINKS]
    ]  # fmt: skip
    return table(["from", "to", f"rate, {unit}", "of its best"], rows, [2, 3], caption)
