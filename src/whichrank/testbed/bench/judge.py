"""A trial's incidents against the truth, every word of them: the strict side of `bench demo` and `bench matrix`.

Of several things that are wrong the one that costs a user most is reported: a wrong name before anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from whichrank.detect.nobody import ALL_GREW
from whichrank.model.incident import Incident, Link
from whichrank.slow.effect import EFFECT
from whichrank.testbed.demo.fault import ALL_PHASES, Fault
from whichrank.testbed.demo.plan import Truth

Verdict = Literal[
    "right", "unknown", "missed", "late", "several", "wrong_name", "wrong_cause", "false_alarm", "no_fault_done"
]
LEAST_COST = EFFECT
"""A slow rank or link is reported if it makes iterations longer by this share, or by more."""
LEAST_COST_OF_ALL = ALL_GREW - 1.0
"""The same where all ranks are slower alike."""
PROMPT_S = 3.0
"""Hard evidence alarms within this time (DESIGN 5.2)."""
SKEW_ITERATIONS = 4
"""A skew is reported when three iterations of it are over, the one in which it began not counted."""
SLACK = 1.5
"""Without hard evidence an alert comes after the hang timeout, and not much later."""
BEFORE_S = 0.2
"""The injector's clock and the file's may differ by so much."""
_SLOW = ("slow", "slow-all", "slow-link")
_ALONE_AT_WORK = ("late-checkpoint", "rank0-eval")
"""Healthy runs in which rank 0 keeps the others waiting: a notice may say so."""
_REASONS = {
    "GIL held": "gil_held", "in user code": "user_code", "waiting for data": "data_wait",
    "writing a checkpoint": "checkpoint", "out of memory": "out_of_memory", "garbage collection": "garbage_collection",
    "CPU limit": "cpu_limit", "CPU contention": "cpu_contention",
}  # fmt: skip


class Ran(msgspec.Struct, frozen=True):
    """How the job ran, as `job.json` says.

    Args:
        ranks: Ranks that were seen.
        exit_status: As the shell shows it; None if the job had not ended.
    """

    ranks: tuple[int, ...] = ()
    exit_status: int | None = None


def judge(
    fault: Fault,
    truth: Truth | None,
    words: Sequence[Incident],
    ran: Ran,
    seconds_to_alert: float | None,
    patience_s: float,
) -> Verdict:
    """Compare every word that was said with the truth.

    Args:
        fault: What was to be done.
        truth: What was done, None if nothing was.
        words: Every incident line in order, updates too: a wrong name that is later withdrawn was said all the same.
        ran: How the job ran.
        seconds_to_alert: From the fault to the first alert, None if there was none while the trial was watched.
        patience_s: The hang timeout.
    """
    if truth is None:
        return "no_fault_done"
    alerts = [w for w in words if w.severity == "alert"]
    if fault.healthy:
        if _named(words) - _allowed(truth) - ({0} if fault.name in _ALONE_AT_WORK else set()):
            return "wrong_name"
        if alerts:
            return "false_alarm"
        if truth.effect == "uneven" and not any(w.cause.value in truth.causes for w in words):
            return "missed"
        return "right" if ran.ranks and ran.exit_status == 0 else "no_fault_done"
    if False in right_names(truth, words):
        return "wrong_name"
    if not alerts or seconds_to_alert is None:
        return "missed"
    if seconds_to_alert < -BEFORE_S:
        return "false_alarm"
    limit_s = PROMPT_S if truth.hard else SLACK * patience_s
    if truth.effect == "skew":
        limit_s = PROMPT_S + SKEW_ITERATIONS * truth.iteration_s
    return _of_alerts(truth, alerts, seconds_to_alert > limit_s)


def is_too_small(effect: str, longer: float | None, at_most: float | None) -> bool:
    """Does a slowdown cost less than what is reported? Then silence is right, and so is a report that comes late.

    Args:
        effect: What was done to the job.
        longer: By which share iterations took longer, None if that was not seen.
        at_most: By which share what was done makes them longer at the most, None if that is not known.
    """
    if effect not in _SLOW:
        return False
    return any(share is not None and share < least_cost(effect) for share in (longer, at_most))


def least_cost(effect: str) -> float:
    """The share by which something must make iterations longer to be reported."""
    return LEAST_COST_OF_ALL if effect == "slow-all" else LEAST_COST


def agrees(verdict: Verdict, *, too_small: bool) -> bool:
    """Does what was reported agree with the truth?"""
    return verdict == "right" or (too_small and verdict in ("missed", "late"))


def right_names(truth: Truth, words: Sequence[Incident]) -> tuple[bool | None, bool | None]:
    """Whether all ranks that are named are at fault, or may be, and all links; None where none is named."""
    ranks, links = _named(words), [link for w in words for link in w.links]
    return (
        ranks <= _allowed(truth) if ranks else None,
        all(_is_hurt(truth, link) for link in links) if links else None,
    )


def is_phase_right(truth: Truth, words: Sequence[Incident]) -> bool | None:
    """Whether each phase that was said of a rank at fault is the right one; None where none is known to be right.

    Where none was said, it is not, unless the rank is slow in all of them.
    """
    of_these = [word for word in words if {one.rank for one in word.culprits} & set(truth.culprits)]
    if not truth.phase or not of_these:
        return None
    said = {word.stage.phase for word in of_these if word.stage and word.stage.phase}
    return said == (set() if truth.phase == ALL_PHASES else {truth.phase})


def _named(words: Sequence[Incident]) -> set[int]:
    return {c.rank for w in words for c in w.culprits}


def _allowed(truth: Truth) -> set[int]:
    return {*truth.culprits, *truth.candidates}


def _of_alerts(truth: Truth, alerts: Sequence[Incident], late: bool) -> Verdict:
    last = alerts[-1]
    if truth.effect == "slow-then-hang":
        last = next((w for w in reversed(alerts) if w.kind != "slow"), last)
    blamed = {c.rank for c in last.culprits}
    if truth.effect not in ("slow", "slow-link") and blamed and not set(truth.culprits) <= blamed:
        return "wrong_name"
    if truth.effect in ("slow", "slow-link"):
        blamed = _named(alerts)
        if not set(truth.culprits) <= blamed:
            return "missed" if blamed else "unknown"
        if truth.slows_links and not any(w.links for w in alerts):
            return "missed"
        if len({w.id for w in alerts}) > len(truth.culprits) + truth.slows_links:
            return "several"
    elif len({w.id for w in alerts}) > 1 + (truth.effect == "slow-then-hang"):
        return "several"
    if not blamed and (truth.culprits or (truth.pairs and not last.links)):
        return "unknown"
    if last.cause.value not in truth.causes:
        return "wrong_cause"
    return "late" if late else "right"


def _is_hurt(truth: Truth, link: Link) -> bool:
    """A link without an end is a connection, one way of which is slow."""
    paths = [(link.src, link.dst)] if link.end else [(link.src, link.dst), (link.dst, link.src)]
    return any(src in truth.sources or dst in truth.targets for src, dst in paths) or _pair(link) in truth.pairs


def _pair(link: Link) -> tuple[int, int]:
    return min(link.src, link.dst), max(link.src, link.dst)


def reason_agrees(truth: Truth | None, alerts: Sequence[Incident]) -> bool | None:
    """Does the last alert give the reason? None where there is none to give, or no alert."""
    if not truth or not truth.reasons or not alerts:
        return None
    return (alerts[-1].reason or "") in {_REASONS.get(reason, reason) for reason in truth.reasons}
