"""When a hang is worth a word, and when an alarm (DESIGN 5.2).

Hard evidence alarms at once, as soon as two snapshots agree. Without it patience is the rule: a *notice* after twice
the iteration and at least ten seconds, an *alert* at the hang timeout (CCL-D: 300 s), or at 0.8 of the operation's own
timeout, so that the verdict comes before the library aborts. Barriers and ranks that visibly work get three times that,
and the time of such work counts a third when it is done; a phase that the script has marked never alarms by time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, TypedDict

from whichrank.model.finding import Finding
from whichrank.model.kinds import BARRIERS, Kind
from whichrank.model.signature import op_bytes

CONFIRM_S = 0.6
"""Hard evidence must hold this long, over two snapshots at least."""
STEADY_S = 2.0
"""Without hard evidence a rank is named only if the same has been seen for this long."""
BARRIER_BYTES = 4
"""Bytes. A smaller all-reduce is used as a barrier: it waits for whatever the slowest rank does before it."""
OP_TIMEOUT_SHARE = 0.8
"""Of an operation's own timeout: so the verdict comes before the library ends the job."""
SUSPECT_FACTOR = 3.0
"""Times the usual wait (99 of 100 are shorter) after which one is suspicious."""


class Urgency(Enum):
    """What to do with a finding."""

    NONE = 0
    NOTICE = 1
    ALERT = 2


class Thresholds(TypedDict):
    """Facts that stretch or end the patience."""

    busy: bool
    """They work now."""
    busy_s: float
    """They have worked for so long while they were waited for."""
    phase: bool
    """One of them is in a phase that the script has marked."""
    phase_s: float
    """And has been for so long while it was waited for."""
    op_timeout_s: float


class Limits(Protocol):
    """The configured limits that are read here; `whichrank.config.AnalyzerConfig` has them."""

    @property
    def suspect_after_s(self) -> float:
        """The earliest suspicion."""

    @property
    def hang_timeout_s(self) -> float:
        """Patience without hard evidence."""

    @property
    def notice_min_s(self) -> float:
        """The earliest notice."""

    @property
    def busy_factor(self) -> float:
        """Patience with a rank that works."""

    @property
    def barrier_factor(self) -> float:
        """Patience with a barrier."""


@dataclass(frozen=True)
class Persistence:
    """How long the same has been seen.

    Attributes:
        key: Cause and names.
        place: Communicator and round of the oldest wait.
        has_links: It is about ways.
    """

    key: tuple[object, ...]
    since_s: float
    polls: int
    place: tuple[object, ...] = ()
    has_links: bool = False

    @property
    def cause(self) -> object:
        """What it would be reported as."""
        return self.key[0]

    @classmethod
    def after(cls, before: Persistence | None, finding: Finding, now_s: float) -> Persistence:
        """One snapshot more, or the first of another finding."""
        key, place = (finding.cause, finding.names), (finding.comm, (finding.op or {}).get("counter"))
        has_links = bool(finding.links)
        # Many operations may wait for one rank, or on one way, and another of them be the oldest at each snapshot.
        is_same = before and (finding.names or before.place == place or (before.has_links and has_links))
        if before and before.key == key and is_same:
            return replace(before, polls=before.polls + 1, place=place, has_links=has_links)
        return cls(key, now_s, 1, place, has_links)


def is_barrier(op: dict[str, int] | None) -> bool:
    """A barrier, or an all-reduce of less than four bytes, which serves as one."""
    if not op:
        return False
    if op["kind"] in BARRIERS:
        return True
    size = op_bytes(op["dtype"], op["count"])
    return op["kind"] == Kind.ALL_REDUCE and size is not None and size < BARRIER_BYTES


def suspicious_s(limits: Limits, usual_s: float) -> float:
    """Seconds that a wait must last before evidence is gathered; never later than a notice, which rests on it.

    Args:
        limits: The configuration.
        usual_s: What 99 of 100 waits on the communicator stay below, 0 unknown.
    """
    return min(max(limits.suspect_after_s, SUSPECT_FACTOR * usual_s), max(limits.suspect_after_s, limits.notice_min_s))


def urgency_of(
    snapshot: Persistence, finding: Finding, facts: Thresholds, limits: Limits, iteration_s: float, now_s: float
) -> Urgency:
    """What a finding is worth now.

    Args:
        snapshot: How long it has been seen.
        finding: The finding.
        facts: What is known of culprits and operations.
        limits: The configuration.
        iteration_s: The expected iteration, 0 unknown.
        now_s: The time.
    """
    waited_s = now_s - finding.onset_s
    if finding.hard and snapshot.polls >= 2 and (finding.seasoned or now_s - snapshot.since_s >= CONFIRM_S):
        return Urgency.ALERT
    if facts["phase"]:
        return Urgency.NONE
    factor = max(limits.busy_factor if facts["busy"] else 1.0, limits.barrier_factor if is_barrier(finding.op) else 1.0)
    outside_s = waited_s - min(facts["phase_s"], waited_s)
    spared_s = min(facts["busy_s"], outside_s) * (1 - 1 / limits.busy_factor)
    too_long = outside_s >= factor * limits.hang_timeout_s and outside_s - spared_s >= limits.hang_timeout_s
    if facts["op_timeout_s"] > 0:
        too_long |= waited_s >= OP_TIMEOUT_SHARE * facts["op_timeout_s"]
    if too_long and snapshot.polls >= 2:
        return Urgency.ALERT
    if (
        outside_s >= max(2 * iteration_s, limits.notice_min_s)
        and snapshot.polls >= 2
        and (finding.culprits or finding.candidates)
    ):
        return Urgency.NOTICE
    return Urgency.NONE
