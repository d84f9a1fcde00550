"""What a validation adds to the incident that it was for: facts beside those that the incident rests on."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from whichrank.model.evidence import Evidence
from whichrank.model.incident import Incident
from whichrank.server.validations_file import Validated

AT_REST = "with the job at rest"


def with_facts(incident: Incident, result: Validated) -> Incident:
    """The incident with what was measured of those whom it names, and how long training waited for that."""
    return msgspec.structs.replace(incident, evidence=(*incident.evidence, *_facts(incident, result)))


def _facts(incident: Incident, result: Validated) -> Iterator[Evidence]:
    if result.problem:
        yield Evidence(what="validation given up", value=result.problem)
    for one in result.slow_ranks:
        what = f"time for the same {'computation' if one.what == 'compute' else 'copy of memory'} {AT_REST}"
        yield Evidence(what=what, value=round(one.factor, 2), unit="times that of others", where=f"rank {one.rank}")
    for link in result.slow_links:
        where = f"rank {link.src} to rank {link.dst}"
        yield Evidence(what=f"rate {AT_REST}", value=round(link.bytes_per_s), unit="B/s", where=where)
        yield Evidence(what=f"rate of other links {AT_REST}", value=round(link.usual_bytes_per_s), unit="B/s")
    slow = {one.rank for one in result.slow_ranks}
    for culprit in incident.culprits:
        if result.seen_from and culprit.rank not in slow and culprit.rank not in result.problems:
            value = f"no more than {result.seen_from:.1f} times that of others"
            yield Evidence(what=f"time for the same computation {AT_REST}", value=value, where=f"rank {culprit.rank}")
    if result.paused_s:
        yield Evidence(what="training paused to measure", value=round(result.paused_s, 2), unit="s")
