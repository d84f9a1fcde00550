"""What is said of logs that were made: right names, candidates, nothing, and wrong names, each counted apart."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from whichrank.errors import WhichrankError
from whichrank.intake.parts import look_into_bytes
from whichrank.intake.read import put_together
from whichrank.intake.recording import Recording
from whichrank.model.incident import Incident
from whichrank.testbed.bench.logs.made import Made

Analyze = Callable[[Recording], Sequence[Incident]]
Said = Literal["named", "candidates", "without it", "nothing", "wrong name"]
KINDS: Final[tuple[Said, ...]] = ("named", "candidates", "nothing", "without it", "wrong name")


class Scored(msgspec.Struct, frozen=True):
    """What was said of one log.

    Attributes:
        name: Of the log.
        fault: What was wrong.
        decides: Whether it says who it is.
        said: The culprit is named, is among the candidates, is not among them, or another rank is named.
        named: Ranks that are named.
    """

    name: str
    fault: str
    decides: bool
    said: Said
    named: tuple[int, ...] = ()


def score(made: Made, analyze: Analyze) -> Scored:
    """What is said of a log, of the last attempt.

    Args:
        made: The log.
        analyze: What is found in a recording.
    """
    return score_attempts(made, analyze)[0]


def score_attempts(made: Made, analyze: Analyze) -> list[Scored]:
    """The same of each attempt in a log, the last one first; one more than were there is a wrong one."""
    try:
        parts = look_into_bytes("job.log", io.BytesIO(made.data), len(made.data))
        intake = put_together(parts, "job", [Path("job.log")])
        last = _scored(made, made.fault, made.culprit, intake.recordings, analyze)
        before = [
            _scored(made, f"{made.fault}: the attempt before", made.first_culprit, one.recordings, analyze)
            for one in intake.earlier
        ]
    except WhichrankError:
        return [Scored(made.name, made.fault, made.decides, "nothing")]
    return [last, *before]


def _scored(made: Made, fault: str, culprit: int, recordings: Sequence[Recording], analyze: Analyze) -> Scored:
    incidents = [incident for one in recordings for incident in analyze(one)]
    named = {one.rank for incident in incidents for one in incident.culprits}
    candidates = {one.rank for incident in incidents for one in incident.candidates}
    said: Said = "nothing"
    if named:
        said = "named" if named == {culprit} else "wrong name"
    elif candidates:
        most_known = max(one.most_known for one in recordings)
        is_beyond = 0 <= most_known < culprit  # it is said that there may be more ranks
        said = "candidates" if culprit in candidates else "nothing" if is_beyond else "without it"
    return Scored(made.name, fault, made.decides, said, tuple(sorted(named)))


def score_all(logs: Iterable[Made], analyze: Analyze, show_progress: Callable[[], None] = lambda: None) -> list[Scored]:
    """The same of many."""
    found = []
    for made in logs:
        found += score_attempts(made, analyze)
        show_progress()
    return found


def table_of(scored: Iterable[Scored]) -> str:
    """How many were said to be what, by fault and by whether the log decides."""
    counts: dict[tuple[str, bool], dict[Said, int]] = {}
    for one in scored:
        row = counts.setdefault((one.fault, one.decides), dict.fromkeys(KINDS, 0))
        row[one.said] += 1
    lines = ["| fault | the log decides | n | named | candidates | nothing | candidates without it | wrong name |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|--:|")
    total = dict.fromkeys(KINDS, 0)
    for (fault, decides), row in sorted(counts.items()):
        cells = " | ".join(str(row[kind]) for kind in KINDS)
        lines.append(f"| {fault} | {'yes' if decides else 'no'} | {sum(row.values())} | {cells} |")
        total = {kind: total[kind] + row[kind] for kind in KINDS}
    cells = " | ".join(f"{total[kind]:,}" for kind in KINDS)
    lines.append(f"| **all** | | {sum(total.values()):,} | {cells} |")
    return "\n".join(lines)
