"""An incident in plain English: `headline` in one line, `paragraph` with all that the user needs to act.

Every word comes from a field of the incident, so the text cannot claim more than the verdict does. Nothing is
looked up and no clock is read: the same incident gives the same text on every machine and at any time. An incident
that is over (the job has gone on, or has ended) is told in the past.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import Final, NamedTuple

from whichrank.model.incident import (
    NOBODY,
    Cause,
    Culprit,
    Evidence,
    Incident,
    Link,
    Reason,
    Spent,
    Stage,
)
from whichrank.surface.tense import past

_MOST_LISTED = 8

_KIND = {"hang": "hang", "slow": "slowdown", "failed": "failure"}

# Reason -> in the present, and in the past where that differs.
_REASON = {
    Reason.STOPPED: ("the process is stopped", "the process was stopped"),
    Reason.GIL_HELD: ("the GIL is held", "the GIL was held"),
    Reason.USER_CODE: ("it is in user code", "it was in user code"),
    Reason.DATA_WAIT: ("it waits for data", "it waited for data"),
    Reason.CHECKPOINT: ("a checkpoint is being written", "a checkpoint was being written"),
    Reason.CPU_CONTENTION: ("CPU contention",),
    Reason.CPU_LIMIT: ("a CPU limit",),
    Reason.GARBAGE_COLLECTION: ("garbage collection",),
    Reason.MORE_TOKENS: ("more tokens than its peers",),
    Reason.DEVICE_CLOCK: ("the device clock",),
    Reason.OUT_OF_MEMORY: ("out of memory",),
    Reason.EXCEPTION: ("an exception",),
    Reason.SIGNAL: ("a signal",),
}

_ENDED = frozenset({Reason.OUT_OF_MEMORY, Reason.EXCEPTION, Reason.SIGNAL})
"""Reasons that say how a process came to its end."""


class _Said(NamedTuple):
    """What culprits do: one of them, several; the same in the past; and in the past of a job that has gone on."""

    one: str
    several: str
    one_past: str
    several_past: str
    gone_on: str


_GONE_ON: Final = ", and the job has gone on"


def _same_past(one: str, several: str, in_the_past: str, gone_on: str = "") -> _Said:
    """Of verbs whose past is one for all."""
    return _Said(one, several, in_the_past, in_the_past, in_the_past + gone_on)


_PREDICATE = {
    Cause.NOT_ENTERED: _same_past("has not entered {op}", "have not entered {op}", "had not entered {op}", _GONE_ON),
    Cause.INCONSISTENT: _Said(
        "disagrees with its peers in {op}",
        "disagree with their peers in {op}",
        "disagreed with its peers in {op}",
        "disagreed with their peers in {op}",
        "disagreed in {op}",
    ),
    Cause.DEADLOCK: _Said(
        "waits in a cycle that includes {op}",
        "wait for each other in a cycle that includes {op}",
        "waited in a cycle that included {op}",
        "waited for each other in a cycle that included {op}",
        "waited in a cycle that included {op}",
    ),
    Cause.TRANSPORT: _Said(
        "is where communication has stopped in {op}",
        "are where communication has stopped in {op}",
        "was where communication had stopped in {op}",
        "were where communication had stopped in {op}",
        "lost communication for a while in {op}",
    ),
    Cause.DEVICE: _same_past("does not complete {op}", "do not complete {op}", "had not completed {op}", _GONE_ON),
    Cause.PROCESS_EXIT: _Said(
        "has left the job",
        "have left the job",
        "left the job",
        "left the job",
        "left the job" + _GONE_ON,
    ),
    Cause.NODE_LOST: _Said(
        "is lost with its node",
        "are lost with their node",
        "was lost with its node",
        "were lost with their node",
        "ran on a node that was out of reach",
    ),
    Cause.COMPUTE_SLOW: _same_past("is slow in computation", "are slow in computation", "computed slowly"),
    Cause.COMMUNICATION_SLOW: _same_past(
        "is slow in communication", "are slow in communication", "communicated slowly"
    ),
    Cause.MIXED_SLOW: _same_past(
        "is slow in computation and communication",
        "are slow in computation and communication",
        "computed and communicated slowly",
    ),
}
_NOT_ANSWERED = _same_past("has not answered {op}", "have not answered {op}", "had not answered {op}", _GONE_ON)
"""A send or receive is not entered by its other end, but answered."""

_NO_OPERATION: Final = {"remote_call": "a remote call", "outside": "a wait outside of any operation"}
"""What ranks wait in that is no operation of a communicator."""

# Cause -> what is said when no rank is named, and that in the past.
_NO_NAME = {
    Cause.NOT_ENTERED: ("{op} has not been entered by all of its ranks", "{op} had not been entered by all its ranks"),
    Cause.INCONSISTENT: ("the ranks disagree in {op}", "the ranks disagreed in {op}"),
    Cause.DEADLOCK: (
        "ranks wait for each other in a cycle that includes {op}",
        "ranks waited in a cycle that included {op}",
    ),
    Cause.TRANSPORT: ("communication has stopped in {op}", "communication had stopped in {op}"),
    Cause.DEVICE: ("{op} completes on some of its ranks only", "{op} had completed on some of its ranks only"),
    Cause.PROCESS_EXIT: ("a process has ended", "a process has ended"),
    Cause.NODE_LOST: ("a node is lost", "a node was lost"),
    Cause.COMPUTE_SLOW: ("computation is slow", "computation was slow"),
    Cause.COMMUNICATION_SLOW: ("communication is slow in {op}", "communication was slow in {op}"),
    Cause.MIXED_SLOW: ("computation and communication are slow", "computation and communication were slow"),
    Cause.IMBALANCE: (
        "no rank is at fault: the work itself is uneven",
        "no rank was at fault: the work itself was uneven",
    ),
    Cause.SUSPENDED: ("no rank is at fault: everything was stopped", "no rank was at fault: everything was stopped"),
    Cause.UNKNOWN: (
        "the evidence does not say which rank is at fault",
        "the evidence does not say which rank was at fault",
    ),
}

_NEEDS_LIFE: Final = re.compile(r"whichrank stacks|\bkill -|\bss -")
"""Commands that look at processes as they hang, or do something to one."""


def headline(incident: Incident) -> str:
    """One line: severity, kind, who and what."""
    label = f"{incident.severity.upper()} {_KIND[incident.kind]}"
    if incident.status == "recovered":
        label += " (recovered)"
    return _clean(f"{label}: {_what(incident, with_place=False)}")


def paragraph(incident: Incident) -> str:
    """One paragraph: who, why, since when, who waits, which op and stage, the numbers, and what to do next."""
    sentences = [
        _opening(incident),
        _where_seen(incident),
        f"Reason: {_REASON[incident.reason][-1 if _is_over(incident) else 0]}" if incident.reason else "",
        _times(incident),
        _victims(incident),
        f"Stage: {_stage(incident.stage)}" if incident.stage else "",
        *dict.fromkeys(_link(link, incident) for link in incident.links[:_MOST_LISTED]),
        *(_confidence(culprit, is_over=_is_over(incident)) for culprit in incident.culprits[:_MOST_LISTED]),
        _candidates(incident),
        _evidence(incident.evidence),
        _spent(incident.times, is_over=_is_over(incident)),
        "" if incident.complete else "Telemetry of at least one rank was missing",
        _decider(incident) if incident.cause == Cause.UNKNOWN else _next(incident),
    ]
    return _clean(" ".join(_sentence(text) for text in sentences if text))


def _is_over(incident: Incident) -> bool:
    """The job has gone on, or has ended."""
    return incident.status != "open"


def _opening(incident: Incident) -> str:
    label = _KIND[incident.kind]
    if incident.status == "recovered":
        label = f"recovered {label}"
    if incident.severity == "notice":
        label = f"notice, no alarm: {label}"
    return f"{label}: {_what(incident, with_place=True)}"


def _what(incident: Incident, *, with_place: bool) -> str:
    op = _op(incident, with_place=with_place)
    if not incident.culprits and incident.links and incident.cause == Cause.COMMUNICATION_SLOW:
        return _slow_links(incident)
    if not incident.culprits:
        said = _NO_NAME[incident.cause][_is_over(incident)].format(op=op)
        return said if incident.cause in NOBODY or incident.links else f"{said}; the evidence names no rank"
    is_one = len(incident.culprits) == 1
    predicate = _predicate(incident, is_one=is_one)
    if is_one:
        subject = _rank(incident.culprits[0], with_place=with_place)
    else:
        subject = f"ranks {ranges([culprit.rank for culprit in incident.culprits])}"
    return f"{subject} {predicate.format(op=op)}"


def _slow_links(incident: Incident) -> str:
    ways = list(dict.fromkeys(map(_slow_way, incident.links)))
    is_over = _is_over(incident)
    if len(ways) == 1:
        between = "from" if incident.links[0].end else "between"
        return f"the link {between} {ways[0]} {'was' if is_over else 'is'} slow"
    listed = ", ".join(ways[:_MOST_LISTED]) + _more(len(ways))
    return f"{len(ways)} links {'were' if is_over else 'are'} slow: {listed}"


def _slow_way(link: Link) -> str:
    """Without an end it is not known which of the two ways is slow."""
    if link.end:
        return f"rank {link.src} to rank {link.dst}"
    return f"ranks {min(link.src, link.dst)} and {max(link.src, link.dst)}"


def _predicate(incident: Incident, *, is_one: bool) -> str:
    """What the culprits do or did.

    Of a job that has gone on no more is said than that it has: the operation may have been entered late, or the whole
    job started again. Only where the one culprit had ended is that known.
    """
    said = _PREDICATE[incident.cause]
    if (
        incident.cause == Cause.NOT_ENTERED
        and incident.op
        and incident.op.kind in ("send", "recv", "recv_any", *_NO_OPERATION)
    ):
        said = _NOT_ANSWERED
    if incident.status == "open":
        return said.one if is_one else said.several
    if incident.status == "final":
        return said.one_past if is_one else said.several_past
    if incident.reason in _ENDED and is_one and "{op}" + _GONE_ON in said.gone_on:
        return f"ended: it {said.gone_on}"
    return said.gone_on


def _where_seen(incident: Incident) -> str:
    """The op, for the causes whose own words do not say it."""
    words = _PREDICATE[incident.cause].one if incident.culprits else _NO_NAME[incident.cause][0]
    if "{op}" in words or incident.cause == Cause.SUSPENDED or incident.op is None:
        return ""
    return f"it {_shows(_is_over(incident))} in {_op(incident, with_place=True)}"


def _shows(is_over: bool) -> str:
    return "showed" if is_over else "shows"


def _rank(culprit: Culprit, *, with_place: bool) -> str:
    place = [culprit.host, f"pid {culprit.pid}" if culprit.pid is not None else None, culprit.device]
    known = ", ".join(part for part in place if part)
    return f"rank {culprit.rank} ({known})" if with_place and known else f"rank {culprit.rank}"


def _op(incident: Incident, *, with_place: bool) -> str:
    if incident.op is None:
        name = "an operation"
    else:
        name = _NO_OPERATION.get(incident.op.kind) or incident.op.kind.replace("_", "-")
        facts = [size(incident.op.bytes) if incident.op.bytes is not None else None, incident.op.dtype]
        known = ", ".join(fact for fact in facts if fact)
        if with_place and known:
            name += f" ({known})"
    communicator = incident.communicator
    if communicator is None:
        return name
    where = communicator.name.removeprefix("mesh_")  # as the analyzer says it in stages and evidence
    if not with_place:
        return f"{name} on {communicator.role or where}"
    members = _count(len(communicator.members), "rank")
    about = f"{communicator.role}, {members}" if communicator.role not in (None, where) else members
    return f"{name} on {where} ({about})"


def _times(incident: Incident) -> str:
    if incident.onset is None:
        text = f"it was detected at {_utc(incident.detected)}"
        start = incident.detected
    else:
        text = f"it began at {_utc(incident.onset)}"
        if incident.detected != incident.onset:  # of a recording nobody knows how long it had lasted
            text += f" and was detected after {_between(incident.onset, incident.detected)}"
        start = incident.onset
    if incident.ended is not None:
        text += f"; it ended at {_utc(incident.ended)}, after {_between(start, incident.ended)}"
    return text


def _victims(incident: Incident) -> str:
    count, ranks = incident.victims.count, incident.victims.ranks
    if count == 0:
        return ""
    slow, over = incident.kind == "slow", _is_over(incident)
    verb = ("lost time" if slow else "waited") if over else ("lose time" if slow else "wait")
    if count == 1 and not over:
        verb = "loses time" if slow else "waits"
    which = f" ({'among them ' if len(ranks) < count else ''}{ranges(ranks)})" if ranks else ""
    return f"{_count(count, 'rank')} {verb}{which}"


def _stage(stage: Stage) -> str:
    parts = [f"iteration {stage.iteration:,}" if stage.iteration is not None else None]
    microbatch = f"microbatch {stage.microbatch}" if stage.microbatch is not None else None
    parts.append(" of ".join(part for part in (stage.phase, microbatch) if part))
    parts += [f"layer {stage.layer}" if stage.layer is not None else None, stage.op]
    return ", ".join(part for part in parts if part) or "not known"


def _link(link: Link, incident: Incident) -> str:
    is_over = _is_over(incident)
    scope = {"intra_node": ", within a node", "inter_node": ", between nodes", None: ""}[link.scope]
    if link.end is None and incident.cause == Cause.COMMUNICATION_SLOW:
        unknown = f"which of its two ways {'was' if is_over else 'is'} slow is not known"
        return f"it {_shows(is_over)} on the link between {_slow_way(link)}{scope}; {unknown}"
    text = f"it {_shows(is_over)} on the link from rank {link.src} to rank {link.dst}{scope}"
    if link.end is None:
        return text
    where = "on the path between them" if link.end == "path" else f"at the {link.end}"
    return f"{text}; the fault {'was' if is_over else 'is'} {where}"


def _confidence(culprit: Culprit, *, is_over: bool) -> str:
    said = f"rank {culprit.rank}, confidence {culprit.confidence:.0%}"
    return f"{said}: {_why(culprit, is_over)}" if culprit.why else said


def _why(culprit: Culprit, is_over: bool) -> str:
    return past(culprit.why) if is_over else culprit.why


def _candidates(incident: Incident) -> str:
    if not incident.candidates:
        return ""
    is_over = _is_over(incident)
    listed = [
        _rank(c, with_place=True) + (f": {_why(c, is_over)}" if c.why else "")
        for c in incident.candidates[:_MOST_LISTED]
    ]
    return "Candidates: " + "; ".join(listed) + _more(len(incident.candidates))


def _evidence(evidence: Sequence[Evidence]) -> str:
    if not evidence:
        return ""
    return "Evidence: " + "; ".join(_fact(item) for item in evidence[:_MOST_LISTED]) + _more(len(evidence))


def _spent(times: Sequence[Spent], *, is_over: bool) -> str:
    """Where an iteration goes: for the slow rank, and for those in its position in the median."""
    if not times:
        return ""
    verb = "spent" if is_over else "spends"
    said = f"of an iteration rank {times[0].rank} {verb} {_parts(times[:1])}"
    if len(times) == 1:
        return said
    if len(times) == 2:
        return f"{said}; rank {times[1].rank} in the same position {verb} {_parts(times[1:])}"
    verb = "spent" if is_over else "spend"
    return f"{said}; {len(times) - 1} ranks in the same position {verb} in the median {_parts(times[1:])}"


def _parts(times: Sequence[Spent]) -> str:
    columns = zip(*((t.own_s, t.transfer_s, t.waiting_s) for t in times), strict=True)
    own, transfer, waiting = (duration(median(column)) for column in columns)
    return f"{own} by itself, {transfer} in transfers and {waiting} waiting"


def _fact(item: Evidence) -> str:
    value = _value(item)
    return f"{item.what} {value} ({item.where})" if item.where else f"{item.what} {value}"


def _value(item: Evidence) -> str:
    if isinstance(item.value, bool):
        return "yes" if item.value else "no"
    if isinstance(item.value, str):
        return f"{item.value} {item.unit}" if item.unit else item.value
    if item.unit in ("B", "bytes"):
        return size(item.value)
    if item.unit == "B/s":
        return f"{size(item.value)}/s"
    if item.unit == "s":
        return duration(item.value)
    return f"{number(item.value)} {item.unit}" if item.unit else number(item.value)


def _decider(incident: Incident) -> str:
    ways = [] if incident.complete else ["the telemetry that is missing"]
    ways += [f"`{command}`" for command in incident.next if not (_is_over(incident) and _NEEDS_LIFE.search(command))]
    if ways:
        return "What would decide it: " + "; ".join(ways)
    if _is_over(incident):
        return "What would have decided it: the stacks of the ranks while it lasted, by `whichrank stacks`"
    return "What would decide it: the stacks of the ranks, by `whichrank stacks`"


def _next(incident: Incident) -> str:
    """What to do; once the incident is over, nothing to processes: a pid may be that of another one."""
    commands = [command for command in incident.next if not (_is_over(incident) and _NEEDS_LIFE.search(command))]
    return "Next: " + ", then ".join(f"`{command}`" for command in commands) if commands else ""


def of_jobs(incidents: Sequence[Incident]) -> str:
    """How many incidents of which jobs: `3 older incidents: 2 of job a, 1 of job b`."""
    jobs = Counter(incident.job for incident in incidents)
    listed = [f"{count} of job {job}" for job, count in list(jobs.items())[:_MOST_LISTED]]
    said = f"{_count(len(incidents), 'older incident')} of job {next(iter(jobs))}"
    if len(jobs) > 1:
        said = f"{len(incidents):,} older incidents: {', '.join(listed)}{_more(len(jobs))}"
    return _clean(said)


def ranges(ranks: Sequence[int]) -> str:
    """Ranks in short: `0-3, 6 and 8`; more than eight runs are cut with their number."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs]
    items = ", ".join(texts[:_MOST_LISTED]).split(", ")
    if len(texts) > _MOST_LISTED:
        rest = sum(b - a + 1 for a, b in runs[_MOST_LISTED:])
        return f"{', '.join(items)} and {rest:,} more"
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else items[0]


def number(value: float) -> str:
    """A number with thousands separators and three significant digits after them."""
    if isinstance(value, int) or abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def size(count: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{number(count)} {unit}"
        count /= 1024
    return f"{number(count)} TiB"


def duration(seconds: float) -> str:
    """Seconds in the unit that a reader expects."""
    if abs(seconds) < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if abs(seconds) < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _between(start: datetime, end: datetime) -> str:
    return duration((end - start).total_seconds())


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _more(total: int) -> str:
    return f"; and {total - _MOST_LISTED:,} more" if total > _MOST_LISTED else ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _clean(text: str) -> str:
    """One line that is safe on a terminal: no newlines and no control characters from a job's own messages."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
