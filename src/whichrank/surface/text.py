"""An incident in plain English: `headline` in one line, `paragraph` with all that the user needs to act.

Every word comes from a field of the incident, so the text cannot claim more than the verdict does. Nothing is
looked up and no clock is read: the same incident gives the same text on every machine and at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from whichrank.model.incident import NOBODY, Cause, Culprit, Evidence, Incident, Link, Reason, Stage

_MOST_LISTED = 8

_KIND = {"hang": "hang", "slow": "slowdown", "failed": "failure"}

_REASON = {
    Reason.STOPPED: "the process is stopped",
    Reason.GIL_HELD: "the GIL is held",
    Reason.USER_CODE: "it is in user code",
    Reason.DATA_WAIT: "it waits for data",
    Reason.CHECKPOINT: "a checkpoint is being written",
    Reason.CPU_CONTENTION: "CPU contention",
    Reason.CPU_LIMIT: "a CPU limit",
    Reason.GARBAGE_COLLECTION: "garbage collection",
    Reason.MORE_TOKENS: "more tokens than its peers",
    Reason.DEVICE_CLOCK: "the device clock",
    Reason.OUT_OF_MEMORY: "out of memory",
    Reason.EXCEPTION: "an exception",
    Reason.SIGNAL: "a signal",
}

_ENDED = frozenset({Reason.OUT_OF_MEMORY, Reason.EXCEPTION, Reason.SIGNAL})
"""Reasons that say how a process came to its end."""

# Cause -> what the culprits do, said of one, of several, and (recovered) of either in the past.
_PREDICATE = {
    Cause.NOT_ENTERED: (
        "has not entered {op}",
        "have not entered {op}",
        "had not entered {op}, and the job has gone on",
    ),
    Cause.INCONSISTENT: ("disagrees with its peers in {op}", "disagree with their peers in {op}", "disagreed in {op}"),
    Cause.DEADLOCK: (
        "waits in a cycle that includes {op}",
        "wait for each other in a cycle that includes {op}",
        "waited in a cycle that included {op}",
    ),
    Cause.TRANSPORT: (
        "is where communication has stopped in {op}",
        "are where communication has stopped in {op}",
        "lost communication for a while in {op}",
    ),
    Cause.DEVICE: ("does not complete {op}", "do not complete {op}", "had not completed {op}, and the job has gone on"),
    Cause.PROCESS_EXIT: (
        "is gone: its process has ended",
        "are gone: their processes have ended",
        "ended, and the job has gone on",
    ),
    Cause.NODE_LOST: ("is lost with its node", "are lost with their node", "was out of reach with its node"),
    Cause.COMPUTE_SLOW: ("is slow in computation", "are slow in computation", "computed slowly"),
    Cause.COMMUNICATION_SLOW: ("is slow in communication", "are slow in communication", "communicated slowly"),
    Cause.MIXED_SLOW: (
        "is slow in computation and communication",
        "are slow in computation and communication",
        "computed and communicated slowly",
    ),
}

# Cause -> what is said when no rank is named.
_NO_NAME = {
    Cause.NOT_ENTERED: "{op} has not been entered by all of its ranks",
    Cause.INCONSISTENT: "the ranks disagree in {op}",
    Cause.DEADLOCK: "ranks wait for each other in a cycle that includes {op}",
    Cause.TRANSPORT: "communication has stopped in {op}",
    Cause.DEVICE: "{op} completes on some of its ranks only",
    Cause.PROCESS_EXIT: "a process has ended",
    Cause.NODE_LOST: "a node is lost",
    Cause.COMPUTE_SLOW: "computation is slow",
    Cause.COMMUNICATION_SLOW: "communication is slow in {op}",
    Cause.MIXED_SLOW: "computation and communication are slow",
    Cause.IMBALANCE: "no rank is at fault: the work itself is uneven",
    Cause.SUSPENDED: "no rank is at fault: everything was stopped",
    Cause.UNKNOWN: "the evidence does not say which rank is at fault",
}


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
        f"Reason: {_REASON[incident.reason]}" if incident.reason else "",
        _times(incident),
        _victims(incident),
        f"Stage: {_stage(incident.stage)}" if incident.stage else "",
        *(_link(link) for link in incident.links[:_MOST_LISTED]),
        *(_confidence(culprit) for culprit in incident.culprits[:_MOST_LISTED]),
        _candidates(incident),
        _evidence(incident.evidence),
        "" if incident.complete else "Telemetry of at least one rank was missing",
        _decider(incident) if incident.cause == Cause.UNKNOWN else _next(incident),
    ]
    return _clean(" ".join(_sentence(text) for text in sentences if text))


def _opening(incident: Incident) -> str:
    label = _KIND[incident.kind]
    if incident.status == "recovered":
        label = f"recovered {label}"
    if incident.severity == "notice":
        label = f"notice, no alarm: {label}"
    return f"{label}: {_what(incident, with_place=True)}"


def _what(incident: Incident, *, with_place: bool) -> str:
    op = _op(incident, with_place=with_place)
    if not incident.culprits:
        said = _NO_NAME[incident.cause].format(op=op)
        return said if incident.cause in NOBODY or incident.links else f"{said}; the evidence names no rank"
    one, several, _ = _predicate(incident)
    is_one = len(incident.culprits) == 1
    predicate = _past(incident) if incident.status == "recovered" else one if is_one else several
    if is_one:
        subject = _rank(incident.culprits[0], with_place=with_place)
    else:
        subject = f"ranks {ranges([culprit.rank for culprit in incident.culprits])}"
    return f"{subject} {predicate.format(op=op)}"


def _predicate(incident: Incident) -> tuple[str, str, str]:
    """What the culprits do. A send or receive is not entered by its other end, but answered.

    Of the past no more is said than that it is over: the operation may have been entered late, or the whole job
    started again. Only where the one culprit had ended is that known.
    """
    if incident.cause == Cause.NOT_ENTERED and incident.op and incident.op.kind in ("send", "recv", "recv_any"):
        return ("has not answered {op}", "have not answered {op}", "had not answered {op}, and the job has gone on")
    return _PREDICATE[incident.cause]


def _past(incident: Incident) -> str:
    """What the culprits had done, of an incident that is over."""
    past = _predicate(incident)[2]
    if incident.reason in _ENDED and len(incident.culprits) == 1 and "{op}, and" in past:
        return f"ended: it {past}"
    return past


def _where_seen(incident: Incident) -> str:
    """The op, for the causes whose own words do not say it."""
    words = _PREDICATE[incident.cause][0] if incident.culprits else _NO_NAME[incident.cause]
    if "{op}" in words or incident.cause == Cause.SUSPENDED or incident.op is None:
        return ""
    return f"it shows in {_op(incident, with_place=True)}"


def _rank(culprit: Culprit, *, with_place: bool) -> str:
    place = [culprit.host, f"pid {culprit.pid}" if culprit.pid is not None else None, culprit.device]
    known = ", ".join(part for part in place if part)
    return f"rank {culprit.rank} ({known})" if with_place and known else f"rank {culprit.rank}"


def _op(incident: Incident, *, with_place: bool) -> str:
    if incident.op is None:
        name = "an operation"
    else:
        name = incident.op.kind.replace("_", "-")
        facts = [size(incident.op.bytes) if incident.op.bytes is not None else None, incident.op.dtype]
        known = ", ".join(fact for fact in facts if fact)
        if with_place and known:
            name += f" ({known})"
    communicator = incident.communicator
    if communicator is None:
        return name
    if not with_place:
        return f"{name} on {communicator.role or communicator.name}"
    members = _count(len(communicator.members), "rank")
    about = f"{communicator.role}, {members}" if communicator.role else members
    return f"{name} on {communicator.name} ({about})"


def _times(incident: Incident) -> str:
    if incident.onset is None:
        text = f"it was detected at {_utc(incident.detected)}"
        start = incident.detected
    else:
        delay = _between(incident.onset, incident.detected)
        text = f"it began at {_utc(incident.onset)} and was detected after {delay}"
        start = incident.onset
    if incident.ended is not None:
        text += f"; it ended at {_utc(incident.ended)}, after {_between(start, incident.ended)}"
    return text


def _victims(incident: Incident) -> str:
    count, ranks = incident.victims.count, incident.victims.ranks
    if count == 0:
        return ""
    slow, over = incident.kind == "slow", incident.status == "recovered"
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


def _link(link: Link) -> str:
    text = f"it shows on the link from rank {link.src} to rank {link.dst}"
    if link.end is None:
        return text
    where = "on the path between them" if link.end == "path" else f"at the {link.end}"
    return f"{text}; the fault is {where}"


def _confidence(culprit: Culprit) -> str:
    said = f"rank {culprit.rank}, confidence {culprit.confidence:.0%}"
    return f"{said}: {culprit.why}" if culprit.why else said


def _candidates(incident: Incident) -> str:
    if not incident.candidates:
        return ""
    listed = [_rank(c, with_place=True) + (f": {c.why}" if c.why else "") for c in incident.candidates[:_MOST_LISTED]]
    return "Candidates: " + "; ".join(listed) + _more(len(incident.candidates))


def _evidence(evidence: Sequence[Evidence]) -> str:
    if not evidence:
        return ""
    return "Evidence: " + "; ".join(_fact(item) for item in evidence[:_MOST_LISTED]) + _more(len(evidence))


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
    if item.unit == "s":
        return duration(item.value)
    return f"{number(item.value)} {item.unit}" if item.unit else number(item.value)


def _decider(incident: Incident) -> str:
    ways = [] if incident.complete else ["the telemetry that is missing"]
    ways += [f"`{command}`" for command in incident.next]
    return "What would decide it: " + ("; ".join(ways) or "the stacks of the ranks, by `whichrank stacks`")


def _next(incident: Incident) -> str:
    """What to do; not once the incident is over, when a pid may be that of another process."""
    if incident.status == "recovered" or not incident.next:
        return ""
    return "Next: " + ", then ".join(f"`{command}`" for command in incident.next)


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
