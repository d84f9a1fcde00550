"""What is made of slowness at each snapshot. A fault of ours there ends this part alone: hangs are watched on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from whichrank.analyzer.parts import Parts
from whichrank.model.finding import Finding
from whichrank.model.incident import Cause, Incident, Severity
from whichrank.model.picture import Picture
from whichrank.slow.slowness import Slowness

T = TypeVar("T")


class Slowdowns:
    """What takes longer than it should in one job.

    Args:
        parts: What the analyzer is made of.
        slowness: Finds it.

    Attributes:
        failed: The fault of ours that has ended this.
    """

    def __init__(self, parts: Parts, slowness: Slowness) -> None:
        self._parts = parts
        self._slowness = slowness
        self.failed: Exception | None = None

    def unless_failed(self, step: Callable[[], T]) -> T | None:
        """Do a step of it; None once one has failed."""
        if self.failed is not None:
            return None
        try:
            return step()
        except Exception as error:
            self.failed = error
            return None

    def examine(self, picture: Picture, now_s: float) -> list[Incident]:
        """Incidents that are new, have changed or are over."""
        return self.unless_failed(lambda: self._snapshot(picture, now_s)) or []

    def at_rest(self, picture: Picture, now_s: float) -> list[Incident]:
        """The same of a recording that others made."""
        return self.unless_failed(lambda: self._keep(self._slowness.at_rest(self._parts.store, picture), now_s)) or []

    def forget_hang(self, incidents: list[Incident]) -> None:
        """What a hang has kept was reported, and is no slow link: after one of these, links are measured anew."""
        if any((one.kind, one.severity, one.status) == ("hang", "alert", "recovered") for one in incidents):
            self.unless_failed(self._slowness.links.begin_anew)

    def _snapshot(self, picture: Picture, now_s: float) -> list[Incident]:
        ranks, seconds = self._slowness.want_profiles(self._parts.store, now_s)
        self._parts.asked.want_samples(ranks, seconds)
        changed = self._keep(self._slowness.examine(self._parts.store, picture, now_s), now_s)
        relieved_s = self._slowness.track.relieved_s(now_s - self._slowness.window_s)
        return changed + self._parts.ledger.drop(self._slowness.is_over, now_s, relieved_s)

    def _keep(self, found: list[tuple[str, Finding]], now_s: float) -> list[Incident]:
        """Incidents of what is slow, as much worth as is known of them."""
        changed = []
        for key, finding in found:
            may_be_none = finding.cause == Cause.UNKNOWN and len(finding.candidates) < 2  # meant, or unexplained
            nobodys = finding.cause == Cause.IMBALANCE or may_be_none or (finding.reason and not finding.culprits)
            severity: Severity = "notice" if nobodys else "alert"
            changed += self._parts.ledger.keep(key, finding, severity, now_s, 2 * self._slowness.window_s)
        return changed
