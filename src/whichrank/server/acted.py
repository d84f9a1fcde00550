"""What was done about an incident, as its evidence: what was changed, what that was to gain, and what it has gained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from whichrank.model.evidence import Evidence
from whichrank.model.incident import Incident
from whichrank.server.mitigations_file import Mitigated, is_taken_back

MOST: Final = 8
"""Replicas of which it is said what they have got."""
_WHAT: Final = {"shares": "shares of the work", "places": "places of ranks"}


def with_actions(incident: Incident, lines: Sequence[Mitigated]) -> Incident:
    """An incident with what was done about it.

    Args:
        incident: As it was found.
        lines: What was done and measured, in order.
    """
    if not lines:
        return incident
    evidence = tuple(one for line in lines for one in _facts(line))
    return msgspec.structs.replace(incident, evidence=(*incident.evidence, *evidence))


def _facts(line: Mitigated) -> Iterator[Evidence]:
    where = f"mitigation {line.step}"
    if line.what == "measured":
        yield Evidence(what="iteration since then", value=line.measured_s or 0.0, unit="s", where=where)
    elif is_taken_back(line) or line.what == "undone":
        yield Evidence(what=f"{_WHAT[line.changes]}", value="as before", where=where)
    elif line.changes == "places":
        moved = sum(before != after for before, after in zip(line.before, line.after, strict=True))
        yield Evidence(what="ranks in other places", value=moved, where=where)
        yield from _times(line)
    else:
        shares = enumerate(zip(line.before, line.after, strict=True))
        changed = [(at, before, after) for at, (before, after) in shares if before != after]
        for at, before, after in changed[:MOST]:
            value = f"{after} instead of {before}"
            yield Evidence(what="microbatches of an iteration", value=value, where=f"replica {at}, {where}")
        yield from _times(line)


def _times(line: Mitigated) -> Iterator[Evidence]:
    where = f"mitigation {line.step}"
    yield Evidence(what="iteration before", value=line.now_s, unit="s", where=where)
    yield Evidence(what="iteration expected", value=line.predicted_s, unit="s", where=where)
