"""How the lines of a verdict are fitted into a terminal."""

from __future__ import annotations

import os
import textwrap
from typing import Final, TextIO

from whichrank.verdict.words.details import INDENT, LABEL

_NARROWEST: Final = 40
_USUAL: Final = 80
"""Columns of a terminal that does not say how many it has."""


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
