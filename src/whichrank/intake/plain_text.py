"""Texts of others as they may be shown: on a terminal, in JSON, in a page."""

from __future__ import annotations

from whichrank.model.plain_text import as_name


def for_people(text: str, most: int = 4096) -> str:
    """Without what is no character, moves a cursor or turns the direction of writing; of a bounded length."""
    return as_name(text[:most])
