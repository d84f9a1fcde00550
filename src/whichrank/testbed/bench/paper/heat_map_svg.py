"""A heat map as SVG text: a number in each cell, axis titles, readable on light and on dark pages.

Nothing but text and rectangles, so it needs no library and no font, and the same numbers give the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np

from whichrank.stage.graph import Floats

CELL: Final = (58, 26)
"""Width and height of a cell, in user units."""
_LEFT, _TOP, _BELOW = 150, 56, 56
_LOW: Final = np.array((239, 243, 255))
_HIGH: Final = np.array((8, 69, 148))
_DARK_FROM: Final = 0.5
"""Share of the scale from which the colour is dark, so that its number is white."""
_STYLE: Final = (
    "<style>text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.in{text-anchor:middle}"
    ".row{text-anchor:end}.dark{fill:#fff}.light{fill:#222}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.dark{fill:#fff}.light{fill:#222}}</style>"
)


@dataclass(frozen=True)
class Axis:
    """Of a heat map.

    Attributes:
        title: What it shows, with its unit.
        labels: Of its rows or columns.
    """

    title: str
    labels: Sequence[str]


def heat_map(title: str, note: str, rows: Axis, columns: Axis, values: Floats, text_of: Callable[[float], str]) -> str:
    """Draw it.

    Args:
        title: What is shown, with its unit.
        note: Of which data it is.
        rows: From the top.
        columns: From the left.
        values: Of the cells, (rows, columns); the darkest one is the highest, NaN is left out.
        text_of: What is written in a cell.
    """
    wide, high = CELL
    width, height = max(_LEFT + wide * values.shape[1] + 12, 8 * len(title)), _TOP + high * values.shape[0] + _BELOW
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    middle_x, middle_y = _LEFT + wide * values.shape[1] / 2, _TOP + high * values.shape[0] / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        _STYLE,
        f'<text class="title" x="10" y="22">{escape(title)}</text>',
        f'<text x="10" y="40">{escape(note)}</text>',
        f'<text class="in" x="{middle_x:g}" y="{height - 12}">{escape(columns.title)}</text>',
        f'<text class="in" transform="translate(16 {middle_y:g}) rotate(-90)">{escape(rows.title)}</text>',
    ]
    for row, label in enumerate(rows.labels):
        parts.append(f'<text class="row" x="{_LEFT - 8}" y="{_TOP + high * row + 18}">{escape(label)}</text>')
    for column, label in enumerate(columns.labels):
        x, y = _LEFT + wide * (column + 0.5), height - _BELOW + 18
        parts.append(f'<text class="in" x="{x:g}" y="{y}">{escape(label)}</text>')
    for row, column in np.argwhere(np.isfinite(values)).tolist():
        value = float(values[row, column])
        share = (value - least) / (most - least) if most > least else 0.0
        red, green, blue = np.round(_LOW + share * (_HIGH - _LOW)).astype(int).tolist()
        x, y = _LEFT + wide * column, _TOP + high * row
        shade = "dark" if share >= _DARK_FROM else "light"
        parts.append(f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" fill="rgb({red},{green},{blue})"/>')
        parts.append(f'<text class="in {shade}" x="{x + wide // 2}" y="{y + 18}">{escape(text_of(value))}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
