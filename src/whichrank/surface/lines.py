"""Lines with a label in front, as a verdict has them, and how they are fitted into a terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable
from typing import Final, TextIO

from whichrank.model.plain_text import one_line

INDENT: Final = 2
LABEL: Final = 12
"""Columns of a label."""
_NARROWEST: Final = 40
_USUAL: Final = 80
"""Columns of a terminal that does not say how many it has."""


def labelled(label: str, texts: Iterable[str]) -> list[str]:
    """A line for each text: the label before the first, the others below it; none without a text."""
    marks = [label]
    lines = []
    for text in texts:
        lines.append(f"{'':{INDENT}}{marks.pop() if marks else '':{LABEL}}{one_line(text)}")
    return lines


def fitted(text: str, width: int) -> str:
    """The same text, its lines broken between words where they are longer; what has a label stays beside it.

    Args:
        text: Lines, of which those with a label are indented.
        width: Columns. Long words are not broken: they are paths and commands.
    """
    width = max(_NARROWEST, width)
    return "\n".join(
        textwrap.fill(
            line, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True,
            subsequent_indent=" " * ((INDENT + LABEL) if line.startswith(" ") else 0),
        )
        for line in text.split("\n")
    )  # fmt: skip


def for_stream(text: str, stream: TextIO | None) -> str:
    """The text as it is written to a stream: fitted into a terminal, unchanged elsewhere."""
    if stream is None or not stream.isatty():
        return text
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return fitted(text, int(columns))
    try:
        return fitted(text, os.get_terminal_size(stream.fileno()).columns or _USUAL)
    except (OSError, ValueError):  # no file behind it
        return fitted(text, _USUAL)
