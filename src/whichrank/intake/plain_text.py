"""Texts of others as they may be shown: on a terminal, in JSON, in a page."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def for_people(text: str, most: int = 4096) -> str:
    """Without what is no character, moves a cursor or turns the direction of writing; of a bounded length."""
    return _CONTROL.sub("?", text[:most].encode("utf-8", "replace").decode())
