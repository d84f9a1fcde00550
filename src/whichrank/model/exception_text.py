"""The text of an exception as a ring keeps it: `ValueError: loss is nan at /home/me/train.py:41`."""

from __future__ import annotations

import re
from typing import Final

_PLACE: Final = re.compile(r"[^:]+:\d+")


def split_place(text: str) -> tuple[str, str]:
    """Its type and message, and where it was raised, `FILE:LINE`; empty where it does not say."""
    said, at, place = text.rpartition(" at ")
    return (said, place) if at and _PLACE.fullmatch(place) else (text, "")


def place_apart(text: str) -> str:
    """The text with its place behind a comma, so that nobody reads the place as a part of the message."""
    said, place = split_place(text)
    return f"{said}, at {place}" if place else said
