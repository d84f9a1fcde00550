"""An incident in plain English: `headline` in one line, `paragraph` with all that the user needs to act.

A paragraph is shaped for reading. Its first line is two sentences that can be read aloud to a colleague: who does what,
and who waits since when. Below stand lines with a label each: where it shows, how sure it is, evidence, candidates,
what to do next.

Every word comes from a field of the incident, so the text cannot claim more than the verdict does. Nothing is
looked up and no clock is read: the same incident gives the same text on every machine and at any time. An incident
that is over (the job has gone on, or has ended) is reported in the past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from whichrank.model.evidence import ITERATION, QUICK_LINK, QUICK_LINKS
from whichrank.model.incident import Cause, Incident
from whichrank.model.plain_text import one_line
from whichrank.verdict.words.amounts import MOST_LISTED, count, duration, ranges, rest
from whichrank.verdict.words.details import details
from whichrank.verdict.words.phrases import (
    because,
    is_over,
    is_silent,
    may_be,
    op_in_question,
    predicate,
    subject,
    why_of,
    without_a_name,
)
from whichrank.verdict.words.raised_alike import raised_alike

_KIND: Final = {"hang": "hang", "slow": "slowdown", "failed": "failure"}
_ITSELF: Final = frozenset({Cause.NOT_ENTERED, Cause.INCONSISTENT, Cause.DEADLOCK, Cause.DEVICE, Cause.PROCESS_EXIT})
"""Causes of which the analyzer's word on a rank says what it does, and need not be reported what that means."""


def headline(incident: Incident) -> str:
    """One line: severity, kind, who does what, and why."""
    kind = "imbalance" if incident.cause == Cause.IMBALANCE else _KIND[incident.kind]
    label = f"{incident.severity.upper()} {kind}"
    if incident.status == "recovered":
        label += " (recovered)"
    if not incident.culprits:
        return one_line(f"{label}: {without_a_name(incident)}")
    why = because(incident)
    said = f"{subject(incident, in_full=False)} {predicate(incident, op_in_question(incident))}"
    return one_line(f"{label}: {said}{'; ' + why if why else ''}")


def paragraph(incident: Incident) -> str:
    """Several lines: two sentences on who, why, since when and who waits; then the evidence and what to do next."""
    sentences = (who(incident) + _cost_of_links(incident), since_when(incident))
    first = " ".join(_sentence(one_line(text)) for text in sentences if text)
    return "\n".join((first, *details(incident)))


def who(incident: Incident) -> str:
    """The first sentence: who it is, what it does, and why."""
    if not incident.culprits:
        if raised := raised_alike(incident):
            return raised
        waits = incident.kind == "hang" and incident.victims.count and incident.reason is None
        return may_be(incident) if incident.cause == Cause.UNKNOWN and waits else without_a_name(incident)
    named = subject(incident, in_full=True)
    does = f"{named} {predicate(incident, op_in_question(incident))}"
    if len(incident.culprits) > 1:
        why = because(incident)
        return f"{does}; {why}" if why else does
    why = why_of(incident, incident.culprits[0])
    if not why:
        why = because(incident)
        return f"{does}; {why}" if why else does
    if why.startswith("it ") and incident.cause in _ITSELF and incident.kind != "slow":
        return f"{named} {why.removeprefix('it ')}"
    return f"{does}: {why}"


def _cost_of_links(incident: Incident) -> str:
    """What slow links make an iteration take, and what it would take without; empty where that is not known."""
    facts = {fact.what: fact.value for fact in incident.evidence}
    now_s, usual_s = facts.get(ITERATION), facts.get(QUICK_LINK, facts.get(QUICK_LINKS))
    if not isinstance(now_s, int | float) or not isinstance(usual_s, int | float) or now_s <= usual_s:
        return ""
    makes = "made" if is_over(incident) else "makes"
    return f"; that {makes} an iteration take {duration(now_s)} instead of {duration(usual_s)}"


def since_when(incident: Incident) -> str:
    """The second sentence: who waits or loses time, and since when."""
    if incident.onset is None:
        return _of_no_time(incident)
    begun = incident.onset
    over = is_over(incident)
    lasted = duration((incident.ended - begun).total_seconds()) if incident.ended and incident.ended > begun else ""
    is_one = incident.victims.count == 1
    if incident.kind == "failed":
        happened = "was found" if is_silent(incident) else "happened"
        return f"it {happened} at {_utc(begun)}{_affected(incident)}{_and_the_job(incident)}"
    until = " until the job ended" if incident.status == "final" else ""
    if incident.cause == Cause.IMBALANCE or not incident.victims.count:
        return f"it lasted for {lasted}, from {_utc(begun)}{until}" if lasted else f"it began at {_utc(begun)}"
    if incident.kind == "slow" and not (incident.culprits or incident.candidates or incident.links):
        longer = f"took longer{f' for {lasted},' if lasted else ''} from" if over else "have taken longer since"
        return f"iterations {longer} {_utc(begun)}{until}"
    suspended = "been suspended" if incident.cause == Cause.SUSPENDED else "waited"
    what = "been slowed down" if incident.kind == "slow" else suspended
    if over:
        what = what.replace("been", "was" if is_one else "were")
        if incident.kind == "slow":
            later = f", {lasted} later" if lasted else ""
            return f"{_victims(incident)} {what} from {_utc(begun)}{until or ' until it was over'}{later}"
        return f"{_victims(incident)} {what}{f' for {lasted},' if lasted else ''} from {_utc(begun)}{until}"
    return f"{_victims(incident)} {'has' if is_one else 'have'} {what} since {_utc(begun)}"


def _and_the_job(incident: Incident) -> str:
    """That it has ended with that: what a rank left out silently ends no job, and of that no later word comes."""
    has_ended = incident.status == "final" and incident.ended and not is_silent(incident)
    return "; the job has ended" if has_ended else ""


def _affected(incident: Incident) -> str:
    """`; ranks 0 and 1 are affected`: for whom the job ends as well, but for those that may be the culprit."""
    in_question = {candidate.rank for candidate in incident.candidates}
    ranks = [rank for rank in incident.victims.ranks if rank not in in_question]
    total = incident.victims.count - len(incident.victims.ranks) + len(ranks)
    if not total:
        return ""
    is_one = total == 1
    is_past = is_over(incident) and not is_silent(incident)
    be = ("was" if is_one else "were") if is_past else "is" if is_one else "are"
    return f"; {_those(total, ranks)} {be} affected"


def _of_no_time(incident: Incident) -> str:
    """The same of a recording in which nothing has a time: when it was read says nothing of when it happened."""
    if not incident.victims.count:
        return "the recording does not say when"
    is_one, over = incident.victims.count == 1, is_over(incident)
    if incident.kind == "hang":
        waits = "waited" if over else "waits" if is_one else "wait"
    else:
        be = ("was" if over else "is") if is_one else "were" if over else "are"
        waits = f"{be} {'affected' if incident.kind == 'failed' else 'slowed down'}"
    when = "when" if incident.kind == "failed" else "since when"
    return f"{_victims(incident)} {waits}; the recording does not say {when}"


def _victims(incident: Incident) -> str:
    """`rank 3`, `ranks 0-4`; in large jobs their number, with those that are listed."""
    return _those(incident.victims.count, incident.victims.ranks)


def _those(total: int, ranks: Sequence[int]) -> str:
    if not ranks:
        return count(total, "rank") if total else ""
    if len(ranks) < total:
        return f"{count(total, 'rank')} (among them {ranges(ranks)})"
    return f"rank {ranks[0]}" if total == 1 else f"ranks {ranges(ranks)}"


def of_jobs(incidents: Sequence[Incident]) -> str:
    """How many incidents of which jobs: `3 older incidents: 2 of job a, 1 of job b`."""
    jobs = Counter(incident.job for incident in incidents)
    listed = [f"{number} of job {job}" for job, number in list(jobs.items())[:MOST_LISTED]]
    said = f"{count(len(incidents), 'older incident')} of job {next(iter(jobs))}"
    if len(jobs) > 1:
        said = f"{len(incidents):,} older incidents: {', '.join(listed)}{rest(len(jobs))}"
    return one_line(said)


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")
