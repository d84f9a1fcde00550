"""The lines below the sentences of a verdict: where it shows, how sure it is, evidence, candidates, what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from whichrank.model.evidence import AT, DETAILS, RAISED_AT, TIME_BLOCKED, Evidence, is_place
from whichrank.model.exception_text import place_apart
from whichrank.model.incident import Cause, Culprit, Incident, Link, Spent
from whichrank.model.links import rate_text
from whichrank.model.next_steps import needs_processes
from whichrank.model.plain_text import one_line
from whichrank.verdict.words.amounts import MOST_LISTED, count, duration, number, ranges, size
from whichrank.verdict.words.phrases import communicator_name, is_over, kind_in_words, rank_of, slow_path, verb, why_of
from whichrank.verdict.words.raised_alike import raised_alike

INDENT: Final = 2
"""Blanks before each line of details."""
LABEL: Final = 12
"""Columns of a label, and before it."""
_OF_A_RANK: Final = re.compile(r"rank (\d+)(.*)", re.DOTALL)


def details(incident: Incident) -> list[str]:
    """All lines, each with its label or below one."""
    parts: list[tuple[str, Iterable[str]]] = [
        ("where", _where(incident)),
        ("links" if len(incident.links) > 1 else "link", _links(incident)),
        ("detected", _detected(incident)),
        ("confidence", _confidence(incident)),
        ("evidence", _evidence([f for f in shown(incident.evidence) if f.what not in DETAILS and not _is_place(f)])),
        ("code", _places(incident)),
        ("time spent", _spent(incident)),
        ("candidates" if len(incident.candidates) > 1 else "candidate", _candidates(incident)),
        ("missing", [] if incident.complete else ["telemetry of at least one rank"]),
        ("to decide" if _is_open_question(incident) else "next", next_steps(incident)),
    ]
    return [line for label, texts in parts for line in labelled(label, texts)]


def shown(evidence: Iterable[Evidence]) -> list[Evidence]:
    """What a reader is shown of it: not how long a rank had waited, since the sentences say since when."""
    return [fact for fact in evidence if fact.what != TIME_BLOCKED]


def _where(incident: Incident) -> list[str]:
    """Iteration, phase and operation, and what is known of the operation: its size unless that differs by rank."""
    stage, op, communicator = incident.stage, incident.op, incident.communicator
    parts = []
    if stage:
        parts.append(f"iteration {stage.iteration:,}" if stage.iteration is not None else "")
        microbatch = f"microbatch {stage.microbatch}" if stage.microbatch is not None else ""
        parts.append(" of ".join(part for part in (stage.phase, microbatch) if part))
        parts.append(f"layer {stage.layer}" if stage.layer is not None else "")
    place = f" on {communicator_name(incident)}" if communicator else ""
    if stage and stage.op:
        parts.append(stage.op)
    elif op and op.kind:
        parts.append(f"{kind_in_words(op.kind)}{place}")
    elif communicator:
        parts.append(place.removeprefix(" on "))
    known = []
    if communicator:
        name = communicator_name(incident)
        role = communicator.role if communicator.role != name else None
        known += [role or "", count(len(communicator.members), "rank") if communicator.members else "members not known"]
    if op and op.kind != "barrier" and incident.cause != Cause.INCONSISTENT:
        known += [size(op.bytes) if op.bytes is not None else "", op.dtype or ""]
    about = ", ".join(part for part in known if part)
    said = ", ".join(part for part in parts if part)
    return [f"{said} ({about})" if said and about else said or about] if said or about else []


def _detected(incident: Incident) -> list[str]:
    if incident.onset is None or incident.detected <= incident.onset:
        return []  # of a recording nobody knows how long it had lasted
    later = duration((incident.detected - incident.onset).total_seconds())
    return [f"{later} after it {'happened' if incident.kind == 'failed' else 'began'}"]


def _links(incident: Incident) -> list[str]:
    reported = list(dict.fromkeys(_link(link, incident) for link in incident.links))
    return _listed(reported)


def _link(link: Link, incident: Incident) -> str:
    scope = {"intra_node": ", within a node", "inter_node": ", between nodes", None: ""}[link.scope]
    if link.end is None and incident.cause == Cause.COMMUNICATION_SLOW:
        is_slow = verb(incident, "is", "was")
        return f"between {slow_path(link)}{scope}: which of the two directions {is_slow} slow is not known"
    text = f"rank {link.src} to rank {link.dst}{scope}"
    if link.end is None:
        return text
    where = "on the path between them" if link.end == "path" else f"at the {link.end}"
    return f"{text}: the fault {verb(incident, 'is', 'was')} {where}"


def _confidence(incident: Incident) -> list[str]:
    """Of the one culprit, whose words stand in the sentence; of several each with its own."""
    if len(incident.culprits) == 1:
        return [f"{incident.culprits[0].confidence:.0%}"]
    return _by_why(incident, incident.culprits, with_confidence=True)


def _candidates(incident: Incident) -> list[str]:
    return _by_why(incident, incident.candidates, with_confidence=False)


def _by_why(incident: Incident, ranks: Sequence[Culprit], *, with_confidence: bool) -> list[str]:
    """A line for each rank with what is said of it; those of a node of which the same is said share one."""
    lines: list[str] = []
    alike: dict[tuple[object, ...], list[Culprit]] = {}
    for rank in ranks:
        alike.setdefault((rank.confidence, rank.host, rank.why), []).append(rank)
    for those in alike.values():
        first, why = those[0], why_of(incident, those[0])
        whom = rank_of(first, in_full=True)
        if len(those) > 1:
            node = f" (node {first.host})" if first.host else ""
            whom = f"each of ranks {ranges([one.rank for one in those])}{node}"
        sure = f"{first.confidence:.0%}, " if with_confidence else ""
        lines.append(f"{sure}{whom}{': ' + why if why else ''}")
    return _listed(lines)


def _evidence(evidence: Sequence[Evidence]) -> list[str]:
    alike: dict[tuple[object, ...], list[Evidence]] = {}
    for item in evidence:
        alike.setdefault(_sort_of(item), []).append(item)
    return _listed([_fact(items) for items in alike.values()])


def _places(incident: Incident) -> list[str]:
    """Where in the code ranks are, those at one place together."""
    facts = [fact for fact in incident.evidence if _is_place(fact)]
    reported: dict[tuple[str, str], list[int]] = {}
    for fact in facts:
        if found := _OF_A_RANK.fullmatch(fact.where or ""):
            reported.setdefault((fact.what, str(fact.value)), []).append(int(found[1]))
    return _listed([_place(incident, what, place, ranks) for (what, place), ranks in reported.items()])


def _is_place(fact: Evidence) -> bool:
    return fact.what == RAISED_AT or is_place(fact)


def _place(incident: Incident, what: str, place: str, ranks: Sequence[int]) -> str:
    is_one = len(ranks) == 1
    whom = f"rank{'s' * (not is_one)} {ranges(ranks)}"
    if what == RAISED_AT:
        return f"{whom} raised at {place}"
    function, bracket, line = place.removesuffix(")").rpartition(" (")
    are = verb(incident, "is" if is_one else "are", "was" if is_one else "were")
    thread = "" if what == AT else f" ({what.removesuffix(' at')})"
    return f"{whom} {are} at {line}{', in ' + function if bracket else ''}{thread}"


def _sort_of(item: Evidence) -> tuple[object, ...]:
    """Equal for facts that differ by nothing but the rank."""
    found = _OF_A_RANK.fullmatch(item.where or "")
    return (item.what, item.value, item.unit, found[2] if found else item.where, found is None)


def _fact(alike: list[Evidence]) -> str:
    """One fact, of one rank or of several."""
    first = alike[0]
    where = first.where
    if len(alike) > 1 and (found := _OF_A_RANK.fullmatch(where or "")):
        ranks = [int(match[1]) for item in alike if (match := _OF_A_RANK.fullmatch(item.where or ""))]
        where = f"ranks {ranges(ranks)}{found[2]}"
    said = f"{first.what}: {_value(first)}"
    return f"{said} ({where})" if where else said


def _value(item: Evidence) -> str:
    if isinstance(item.value, bool):
        return "yes" if item.value else "no"
    if isinstance(item.value, str):
        if item.what == "exception":
            return place_apart(item.value)
        return f"{item.value} {item.unit}" if item.unit else item.value
    if item.unit in ("B", "bytes"):
        return size(item.value)
    if item.unit == "B/s":
        return rate_text(item.value)
    if item.unit == "s/s":
        return f"{item.value:.0%} of the time"
    if item.unit == "s":
        return duration(item.value)
    if item.unit == "ranks" and isinstance(item.value, int):
        return count(item.value, "rank")
    if item.unit and item.unit.startswith("%"):
        return f"{number(item.value)}{item.unit}"
    return f"{number(item.value)} {item.unit}" if item.unit else number(item.value)


def _spent(incident: Incident) -> list[str]:
    """Where an iteration goes: for the slow rank, and for those in its position in the median."""
    times = incident.times
    if not times:
        return []
    lines = [f"rank {times[0].rank}, per iteration on average: {_parts(times[:1])}"]
    if len(times) == 2:
        lines.append(f"rank {times[1].rank}, in its position: {_parts(times[1:])}")
    elif len(times) > 2:
        lines.append(f"median of {len(times) - 1} ranks in its position: {_parts(times[1:])}")
    return lines


def _parts(times: Sequence[Spent]) -> str:
    columns = zip(*((t.own_s, t.transfer_s, t.waiting_s) for t in times), strict=True)
    own, transfer, waiting = (duration(median(column)) for column in columns)
    return f"{own} of own time, {transfer} in transfers, {waiting} waiting for others"


def _is_open_question(incident: Incident) -> bool:
    return incident.cause == Cause.UNKNOWN and not raised_alike(incident)


def next_steps(incident: Incident) -> list[str]:
    """What to do; once the incident is over, nothing to processes: a pid may be that of another one."""
    over = is_over(incident)
    steps = [step for step in incident.next if not (over and needs_processes(step))]
    if steps or not _is_open_question(incident):
        return steps
    return [f"the stacks of the ranks{', if it happens again' if over else ''}: whichrank stacks"]


def _listed(texts: Sequence[str]) -> list[str]:
    more = len(texts) - MOST_LISTED
    if more <= 1:
        return list(texts)  # the line that says so would take its place
    return [*texts[:MOST_LISTED], f"and {more:,} more lines"]


def labelled(label: str, texts: Iterable[str]) -> list[str]:
    """A line for each text: the label before the first, the others below it; none without a text."""
    marks = [label]
    lines = []
    for text in texts:
        lines.append(f"{'':{INDENT}}{marks.pop() if marks else '':{LABEL}}{one_line(text)}")
    return lines
