"""A chart of rows: names on the left, drawings that stretch with the page, a sentence for each row on the right.

The drawing is SVG without text, so it may be stretched to any width. Names, ticks and marks are HTML over it and keep
their size. Nothing needs a script or a pointer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from whichrank.surface.report.html import Html, el, join

WIDTH: Final = 1000.0
"""Of the drawing, in its own units."""
ROW: Final = 16
"""Height of a row in CSS pixels and in units of the drawing."""
BAR: Final = 12
"""Height of a bar in it."""


@dataclass(frozen=True)
class Bar:
    """A bar in a row.

    Attributes:
        row: From 0.
        begin: From 0 to WIDTH.
        end: Behind it.
        class_: Of CSS, which gives its colour.
    """

    row: int
    begin: float
    end: float
    class_: str


@dataclass(frozen=True)
class Mark:
    """A line through all rows.

    Attributes:
        at: From 0 to WIDTH.
        class_: Of CSS.
        text: Above it; empty if there is none.
    """

    at: float
    class_: str
    text: str = ""


@dataclass(frozen=True)
class Tick:
    """A label below the rows.

    Attributes:
        at: From 0 to WIDTH.
        text: What it says.
    """

    at: float
    text: str


def chart(
    rows: Sequence[str], bars: Iterable[Bar], *, about: str, named: frozenset[int] = frozenset(),
    marks: Sequence[Mark] = (), ticks: Sequence[Tick] = (), ticks_of: str = "", upper: Sequence[Tick] = (),
    upper_of: str = "", notes: Mapping[int, str] | None = None,
) -> Html:  # fmt: skip
    """A chart.

    Args:
        rows: Their names.
        bars: In any order; those of a class that comes later are drawn over the others.
        about: What it shows, for those who do not see it.
        named: Rows whose names stand out.
        marks: Lines.
        ticks: Below the rows.
        ticks_of: What they count.
        upper: Above the rows.
        upper_of: What these count.
        notes: What is said on the right of rows.
    """
    height = len(rows) * ROW
    paths: dict[str, list[str]] = {}
    for bar in bars:
        y = bar.row * ROW + (ROW - BAR) // 2
        width = max(bar.end - bar.begin, 0.6)
        paths.setdefault(bar.class_, []).append(f"M{bar.begin:.5g} {y}h{width:.4g}v{BAR}h-{width:.4g}z")
    shapes = [el("path", class_=class_, d="".join(of)) for class_, of in paths.items()]
    drawing = el("svg", *shapes, viewBox=f"0 0 {WIDTH:g} {height}", preserveAspectRatio="none",
                 style=f"height:{height}px", role="img", aria_label=about)  # fmt: skip
    lines = [el("i", class_=f"mark {mark.class_}", style=_left(mark.at)) for mark in marks]
    heads = [el("b", mark.text, class_=_side(mark.at), style=_left(mark.at)) for mark in marks if mark.text]
    names = [el("div", name, class_="named" if at in named else None) for at, name in enumerate(rows)]
    said = [el("div", notes.get(at, "")) for at in range(len(rows))] if notes else []
    return el(
        "div",
        el("div", *heads, class_="heads") if heads else None,
        *(_axis("upper", upper, upper_of) if upper else ()),
        el("div", *names, class_="names"),
        el("div", drawing, join(lines), class_="area"),
        el("div", *said, class_="said") if said else None,
        *(_axis("axis", ticks, ticks_of) if ticks else ()),
        class_="chart with-notes" if said else "chart",
    )


def _axis(class_: str, ticks: Sequence[Tick], of: str) -> tuple[Html, Html]:
    """What the labels count, and the labels. Every second one is left out on a phone."""
    labels = (
        el("span", tick.text, class_=f"{_side(tick.at)}{' odd' if at % 2 else ''}", style=_left(tick.at))
        for at, tick in enumerate(ticks)
    )
    return el("div", of, class_="of"), el("div", *labels, class_=class_)


def _left(at: float) -> str:
    return f"left:{min(max(at / WIDTH, 0.0), 1.0):.3%}"


def _side(at: float) -> str:
    """Labels at an edge lean inwards."""
    return "first" if at < 0.08 * WIDTH else "last" if at > 0.92 * WIDTH else "middle"


def legend(*pairs: tuple[str, str]) -> Html:
    """What the classes of bars and marks mean."""
    return el("p", *(el("span", el("i", class_=class_), text) for class_, text in pairs), class_="legend")
