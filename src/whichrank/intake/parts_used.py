"""Which parts are used: a rank's file once, and groups that are equal as one object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Final

import msgspec
import numpy as np

from whichrank.intake.flight_dump import Dump, Group
from whichrank.intake.parts import Part

COPY: Final = "it says the same as"


def with_shared(part: Part, groups: dict[Group, Group]) -> Part:
    """With groups that were in another dump as they are there: each names all members, and all ranks name the same."""
    if not isinstance(part.content, Dump):
        return part
    shared = tuple(groups.setdefault(group, group) for group in part.content.groups)
    return replace(part, content=replace(part.content, groups=shared))


def without_copies(parts: Iterable[Part]) -> list[Part]:
    """Of a rank's file that is there twice, the first; the other is noted and not used."""
    first: dict[tuple[type, int], Part] = {}
    found = []
    for part in parts:
        if part.content is not None and part.note.rank is not None:
            one = first.setdefault((type(part.content), part.note.rank), part)
            if one is not part and _is_same(one.content, part.content):
                what = f"{COPY} '{one.note.path}'"
                part = Part(msgspec.structs.replace(part.note, state="ignored", what=what))
        found.append(part)
    return found


def _is_same(one: Any, other: Any) -> bool:
    """Are two contents of one type equal?"""
    pairs = ((getattr(one, known.name), getattr(other, known.name)) for known in fields(one))
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)
