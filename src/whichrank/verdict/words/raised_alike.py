"""The sentence for the commonest failure of all: all ranks, or most, raised the same exception at the same place."""

from __future__ import annotations

import textwrap
from typing import Final

from whichrank.model.evidence import IN_OPERATION, RAISED_ALIKE
from whichrank.model.exception_text import split_place
from whichrank.model.incident import Cause, Incident, Reason

_MOST_TEXT: Final = 120
"""Characters of the exception in the sentence; the evidence has the whole."""
_QUOTES: Final = ("'", '"')
"""A message that begins with one has its own, as that of a KeyError."""


def raised_alike(incident: Incident) -> str:
    """`all 4 ranks raised ValueError: "loss is nan", at train.py:41; no rank differs`, empty for any other incident."""
    if incident.cause != Cause.UNKNOWN or incident.reason != Reason.EXCEPTION:
        return ""
    alike = next((fact for fact in incident.evidence if fact.what == RAISED_ALIKE), None)
    texts = [str(fact.value) for fact in incident.evidence if fact.what == "exception"]
    if alike is None or not texts:
        return ""
    of_all, in_operation, _ = (alike.where or "").removeprefix("of ").partition(IN_OPERATION)
    text, place = split_place(texts[0])
    if len(texts) > 1:
        text = text.partition(":")[0]
    where = f"{',' * (len(texts) == 1)} at {place.rpartition('/')[2]}" if place else ""
    kind, _, message = textwrap.shorten(text, _MOST_TEXT, placeholder=" …").partition(": ")
    if message and message[0] not in _QUOTES:
        message = f'"{message}"'
    said = f"raised {kind}: {message}{where}" if message else f"raised {kind}{where}"
    if len(texts) > 1:
        said += ", with texts that differ"
    is_all = str(alike.value) == of_all
    who = f"all {of_all}" if is_all else f"{alike.value} of {of_all}"
    differs = "no rank differs" if is_all and len(texts) == 1 and not in_operation else "the evidence names no rank"
    return f"{who} ranks {said}; {differs}"
