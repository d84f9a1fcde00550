"""The sentence for the commonest failure of all: all ranks, or most, raised the same exception at the same place."""

from __future__ import annotations

import re
import textwrap
from pathlib import PurePath
from typing import Final

from whichrank.model.incident import RAISED_ALIKE, Cause, Incident, Reason

_PLACE: Final = re.compile(r" at (\S+:\d+)$")
_MOST_TEXT: Final = 120
"""Characters of the exception in the sentence; the evidence has the whole."""


def raised_alike(incident: Incident) -> str:
    """`all 4 ranks raised ValueError: loss is nan at train.py:41; no rank differs`, empty for any other incident."""
    if incident.cause != Cause.UNKNOWN or incident.reason != Reason.EXCEPTION:
        return ""
    facts = {fact.what: fact for fact in incident.evidence}
    alike, exception = facts.get(RAISED_ALIKE), facts.get("exception")
    if alike is None or exception is None:
        return ""
    of_all = (alike.where or "").removeprefix("of ")
    said = str(exception.value)
    place = _PLACE.search(said)
    text = textwrap.shorten(said[: place.start()] if place else said, _MOST_TEXT, placeholder=" …")
    where = f" at {PurePath(place[1]).name}" if place else ""
    if str(alike.value) == of_all:
        return f"all {of_all} ranks raised {text}{where}; no rank differs"
    return f"{alike.value} of {of_all} ranks raised {text}{where}; the evidence names no rank"
